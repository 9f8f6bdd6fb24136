//! The suite of every device, on one made of numbers: a backend from elsewhere, with pages and without.

use terrace_device::Device;
use terrace_tests::device::World;
use terrace_tests::manual::Manual;

fn world(case: &dyn Fn(&World<'_>)) {
    for pages in [true, false] {
        let numbers = std::cell::RefCell::new(Vec::new());
        let open = |options| {
            let manual = Manual::new(1 << 30, pages);
            numbers.borrow_mut().push(manual.clone());
            Device::open(manual, options)
        };
        case(&World { open: &open, bytes: false });
        for manual in numbers.take() {
            assert_eq!(
                (manual.broken(), manual.outstanding()),
                (vec![], vec![]),
                "rules broken, things not given back"
            );
        }
    }
}

terrace_tests::device_suite!(world);
