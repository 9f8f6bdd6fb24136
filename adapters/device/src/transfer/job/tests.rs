//! Tests of jobs alone, without a queue and lanes.

use super::*;

/// One part is refused each time, while other parts of its job arrive.
#[test]
fn tries_of_one_piece_are_bounded() {
    let route = Route { direction: Direction::Up, direct: true };
    let ranges = (0..1000).map(|i| CopyRange { to: i * 10, from: i * 10, bytes: 10 }).collect();
    let job = Job::new(route, Priority::Normal, [None, None], 1, Arc::default()).with(ranges, None);
    let delay = |n: u32| (n < 8).then_some(Duration::ZERO);
    let now = || Instant::now() + Duration::from_secs(1);
    let mut tries = 0;
    while let JobStep::Some(bad, refused, _) = job.take(10, now()) {
        tries += 1;
        assert_eq!(bad.to, 0, "it goes first again");
        assert!(matches!(job.take(10, now()), JobStep::Some(..)), "another lane's");
        let (_, deferred) = job.again((bad, refused), &DeviceError::Cancelled, delay);
        deferred.act();
        job.settled(10).act();
    }
    assert_eq!(tries, 8);
}

/// A job with one range, all of which is in flight.
fn in_flight(bytes: u64) -> (Job, CopyRange, Arc<EngineCounters>) {
    let (route, counters) = (Route { direction: Direction::Up, direct: true }, Arc::<EngineCounters>::default());
    let range = CopyRange { to: 0, from: 0, bytes };
    let job = Job::new(route, Priority::Normal, [None, None], 1, Arc::clone(&counters)).with(vec![range], None);
    assert!(matches!(job.take(bytes, Instant::now()), JobStep::Some(..)));
    (job, range, counters)
}

#[test]
fn the_first_error_is_told() {
    let route = Route { direction: Direction::Up, direct: true };
    let ranges = vec![CopyRange { to: 0, from: 0, bytes: 10 }, CopyRange { to: 10, from: 10, bytes: 10 }];
    let job = Job::new(route, Priority::Normal, [None, None], 1, Arc::default()).with(ranges, None);
    for _ in 0..2 {
        assert!(matches!(job.take(10, Instant::now()), JobStep::Some(..)));
    }
    job.failed(DeviceError::BadOption("first".into())).act();
    job.failed(DeviceError::BadOption("second".into())).act();
    let end = job.wait();
    assert!(end.result == Err(DeviceError::BadOption("first".into())) && end.touched);
}

#[test]
fn a_job_ends_once_and_is_counted_once() {
    let (job, range, counters) = in_flight(10);
    job.settled(range.bytes).act();
    job.let_go();
    job.let_go();
    let stats = counters.stats(0).up;
    assert_eq!((stats.transfers, stats.bytes, stats.cancelled, stats.failed), (1, 10, 0, 0));
    let (job, range, counters) = in_flight(10);
    job.cancel();
    assert!(job.poll(Waker::noop()).is_none(), "a part of it is on its way");
    job.settled(range.bytes).act();
    let end = job.wait();
    assert_eq!(end.result.map(|report| report.bytes), Ok(10), "all of it had been issued");
    assert_eq!(counters.stats(0).up.transfers, 1);
}

#[test]
fn only_the_last_waker_is_told() {
    struct Count(std::sync::atomic::AtomicU32);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let (job, range, _) = in_flight(10);
    let counts = [(); 2].map(|()| Arc::new(Count(0.into())));
    for count in &counts {
        assert!(job.poll(&Waker::from(Arc::clone(count))).is_none());
    }
    job.settled(range.bytes).act();
    let woken = counts.map(|count| count.0.load(std::sync::atomic::Ordering::Relaxed));
    assert_eq!(woken, [0, 1]);
    assert!(job.poll(Waker::noop()).is_some_and(|end| end.result.is_ok()));
}

#[test]
fn a_lost_job_keeps_its_memory_for_ever() {
    struct Kept(Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Kept {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let route = Route { direction: Direction::Down, direct: false };
    let ranges = vec![CopyRange { to: 0, from: 0, bytes: 10 }];
    let keep: Keep = Some(Box::new(Kept(Arc::clone(&dropped))));
    let job = Job::new(route, Priority::Normal, [None, None], 1, Arc::default()).with(ranges, keep);
    assert!(matches!(job.take(10, Instant::now()), JobStep::Some(..)));
    job.lost(DeviceError::Cancelled).act();
    let end = job.wait();
    assert!(end.result.is_err() && end.keep.is_none());
    drop(job);
    assert!(!dropped.load(std::sync::atomic::Ordering::Relaxed));
}
