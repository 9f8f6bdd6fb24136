//! The classifier alone: its borders, its order, and its reasons.

use terrace_tiers::detect::{
    BackingStore, DecidedBy, DiskClass, DiskFacts, Drive, ReadProfile, TierKind, Transport, classify,
};

fn facts(transport: Transport, rotational: Option<bool>, profile: Option<(f64, f64, u64)>) -> DiskFacts {
    let drives = vec![Drive { name: "d".into(), model: None, transport, rotational, sector_bytes: None }];
    let profile = profile.map(|(random_over_sequential, depth_scaling, latency_ns)| ReadProfile {
        random_over_sequential,
        depth_scaling,
        latency_ns,
    });
    DiskFacts {
        declared: None,
        file_system: "ext4".into(),
        backing: BackingStore::Disks,
        read_only: false,
        drives,
        profile,
    }
}

fn tier(class: &DiskClass) -> (TierKind, DecidedBy) {
    (class.tier.expect("a tier"), class.by)
}

#[test]
fn the_ratio_decides_and_depth_where_the_ratio_does_not() {
    let of = |ratio, depth| tier(&classify(&facts(Transport::Usb, None, Some((ratio, depth, 100_000)))));
    let (ssd, hdd) = ((TierKind::Ssd, DecidedBy::Measurement), (TierKind::Hdd, DecidedBy::Measurement));
    // Many at once gain nothing where a ratio is clear.
    assert_eq!([of(0.0, 16.0), of(0.099, 16.0), of(0.3, 0.5), of(1.1, 1.0)], [hdd, hdd, ssd, ssd]);
    assert_eq!([of(0.1, 2.9), of(0.1, 3.0), of(0.29, 2.0), of(0.29, 8.0)], [hdd, ssd, hdd, ssd]);
}

#[test]
fn a_cache_and_no_number_say_nothing() {
    for profile in [(1.0, 8.0, 4_999), (f64::NAN, 8.0, 100_000), (1.0, f64::INFINITY, 100_000)] {
        let class = classify(&facts(Transport::Ata, Some(true), Some(profile)));
        assert_eq!(tier(&class), (TierKind::Hdd, DecidedBy::Guess), "{profile:?}");
    }
    let cached = classify(&facts(Transport::Ata, Some(true), Some((1.0, 8.0, 4_999))));
    assert!(cached.reasons.iter().any(|reason| reason.contains("a cache answered (4999 ns")), "{cached:?}");
    let slower = classify(&facts(Transport::Ata, Some(true), Some((1.0, 8.0, 5_000))));
    assert_eq!(tier(&slower), (TierKind::Ssd, DecidedBy::Measurement));
}

#[test]
fn rotational_alone_is_never_more_than_a_guess() {
    let transports =
        [Transport::Ata, Transport::Usb, Transport::Scsi, Transport::Virtual, Transport::Loop, Transport::Unknown];
    for transport in transports {
        for rotational in [None, Some(false), Some(true)] {
            let class = classify(&facts(transport, rotational, None));
            assert_eq!(class.by, DecidedBy::Guess);
            let turns = rotational != Some(false) && transport != Transport::Virtual;
            assert_eq!(
                class.tier,
                Some(if turns { TierKind::Hdd } else { TierKind::Ssd }),
                "{transport:?} {rotational:?}"
            );
            let excused = class.reasons.iter().any(|reason| reason.contains("most virtual disks are flash"));
            assert_eq!(excused, transport == Transport::Virtual, "{transport:?} {rotational:?}");
            // Measured, it is not asked.
            for (ratio, expected) in [(0.02, TierKind::Hdd), (0.9, TierKind::Ssd)] {
                let class = classify(&facts(transport, rotational, Some((ratio, 4.0, 50_000))));
                assert_eq!(tier(&class), (expected, DecidedBy::Measurement), "{transport:?} {rotational:?}");
            }
        }
    }
}

#[test]
fn the_word_comes_first_then_the_transport_then_the_measurement() {
    let nvme = facts(Transport::Nvme, Some(true), Some((0.02, 1.0, 100_000)));
    let class = classify(&nvme);
    assert_eq!(tier(&class), (TierKind::Nvme, DecidedBy::Transport));
    assert!(class.reasons.iter().any(|reason| reason.contains("rotational=1, which is not so")), "{class:?}");
    for word in [TierKind::Nvme, TierKind::Ssd, TierKind::Hdd] {
        assert_eq!(tier(&classify(&DiskFacts { declared: Some(word), ..nvme.clone() })), (word, DecidedBy::Declared));
    }
    // No disk is memory.
    for word in [TierKind::Gpu, TierKind::Cpu] {
        assert_eq!(
            tier(&classify(&DiskFacts { declared: Some(word), ..nvme.clone() })),
            (TierKind::Nvme, DecidedBy::Transport)
        );
    }
    let agreed = classify(&DiskFacts { declared: Some(TierKind::Nvme), ..nvme });
    assert_eq!(agreed.reasons, ["you said nvme"], "nothing speaks against it");
}

#[test]
fn every_class_has_a_tier_or_a_refusal_and_a_reason() {
    let mut seen = [0; 2];
    for backing in [
        BackingStore::Disks,
        BackingStore::Memory,
        BackingStore::Network,
        BackingStore::WindowsDrive,
        BackingStore::Unknown,
    ] {
        for (declared, read_only) in
            [(None, false), (None, true), (Some(TierKind::Hdd), false), (Some(TierKind::Hdd), true)]
        {
            for drives in
                [Vec::new(), facts(Transport::Memory, None, None).drives, facts(Transport::Ata, None, None).drives]
            {
                let file_system = "fs".into();
                let class = classify(&DiskFacts { declared, file_system, backing, read_only, drives, profile: None });
                assert_ne!(class.tier.is_some(), class.refused.is_some());
                assert_eq!(class.by == DecidedBy::Refusal, class.tier.is_none());
                assert!(class.reasons.iter().all(|reason| !reason.is_empty()) && !class.reasons.is_empty());
                seen[usize::from(class.tier.is_none())] += 1;
            }
        }
    }
    assert_eq!(seen, [19, 41]);
}
