//! Jobs by hand: no queue, no lane.

use super::*;

/// One piece is always refused while others of its job arrive.
#[test]
fn tries_of_one_piece_are_bounded() {
    let route = Route { way: Way::Up, direct: true };
    let ranges = (0..1000).map(|i| CopyRange { to: i * 10, from: i * 10, bytes: 10 }).collect();
    let job = Job::new(route, Priority::Normal, [None, None], 1, Arc::default()).with(ranges, None);
    let delay = |n: u32| (n < 8).then_some(Duration::ZERO);
    let now = || Instant::now() + Duration::from_secs(1);
    let mut tries = 0;
    while let Look::Some(bad, refused, _) = job.take(10, now()) {
        tries += 1;
        assert_eq!(bad.to, 0, "it goes first again");
        assert!(matches!(job.take(10, now()), Look::Some(..)), "another lane's");
        let (_, after) = job.again((bad, refused), &DeviceError::Cancelled, delay);
        after.act();
        job.settled(10).act();
    }
    assert_eq!(tries, 8);
}
