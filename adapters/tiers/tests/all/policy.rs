//! The eviction policies beside naive ones, and what each is for.

use crate::policies;

use policies::Naive;
use policies::cache::{Cache, walk};
use proptest::prelude::*;
use terrace_tiers::policy::{Policy, PolicyKind, Verdict};

const KINDS: [PolicyKind; 3] = [PolicyKind::Lru, PolicyKind::Sieve, PolicyKind::S3Fifo];

#[derive(Clone, Debug)]
enum Call {
    Insert(u32, u64),
    Touch(u32),
    Remove(u32),
    /// The answers, by number modulo their count.
    Victim(Vec<u8>),
    /// As `Victim`, and the victim stays after all.
    VictimBack(Vec<u8>),
}

fn call() -> impl Strategy<Value = Call> {
    let id = 0u32..12;
    let answers = || proptest::collection::vec(0u8..6, 1..12);
    prop_oneof![
        4 => (id.clone(), 1u64..40).prop_map(|(id, bytes)| Call::Insert(id, bytes)),
        4 => id.clone().prop_map(Call::Touch),
        1 => id.prop_map(Call::Remove),
        3 => answers().prop_map(Call::Victim),
        1 => answers().prop_map(Call::VictimBack),
    ]
}

/// Half of the verdicts evict, a third are `Referenced`.
fn answer(answers: &[u8], id: u32) -> Verdict {
    match answers[id as usize % answers.len()] {
        0..3 => Verdict::Evict,
        3 => Verdict::Skip,
        // Once or twice.
        many => Verdict::Referenced(many - 3),
    }
}

/// The victim, and the members asked about, in order.
fn ask(one: impl FnOnce(&mut dyn FnMut(u32) -> Verdict) -> Option<u32>, answers: &[u8]) -> (Option<u32>, Vec<u32>) {
    let mut asked = Vec::new();
    let victim = one(&mut |id| {
        asked.push(id);
        answer(answers, id)
    });
    (victim, asked)
}

fn compare(kind: PolicyKind, calls: &[Call]) {
    let (mut policy, mut model): (Box<dyn Policy>, Naive) = (kind.build(), Naive::new(kind));
    for call in calls {
        match call {
            Call::Insert(id, bytes) => {
                policy.insert(*id, *bytes);
                model.insert(*id, *bytes);
            }
            Call::Touch(id) => {
                policy.touch(*id);
                model.touch(*id);
            }
            Call::Remove(id) => {
                policy.remove(*id);
                model.remove(*id);
            }
            Call::Victim(answers) | Call::VictimBack(answers) => {
                let (victim, asked) = ask(|may| policy.victim(may), answers);
                let sizes = model.members();
                assert_eq!((victim, &asked), (ask(|may| model.victim(may), answers).0, &asked), "{kind:?}");
                once(&asked, sizes.len(), victim);
                if let (Some(id), Call::VictimBack(_)) = (victim, call) {
                    let bytes = sizes.iter().find(|(member, _)| *member == id).expect("it was one").1;
                    policy.restore(id, bytes);
                    model.restore(id, bytes);
                    let next = ask(|may| policy.victim(may), &[0]).0;
                    assert_eq!(next, ask(|may| model.victim(may), &[0]).0);
                }
            }
        }
        let members = model.members();
        assert_eq!(policy.totals(), (members.len(), members.iter().map(|(_, bytes)| bytes).sum()), "{kind:?} {call:?}");
        assert!((0..12).all(|id| policy.contains(id) == members.iter().any(|(member, _)| *member == id)));
    }
}

/// No member was asked about twice, and every member was if there is no victim.
fn once(asked: &[u32], members: usize, victim: Option<u32>) {
    let mut sorted = asked.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), asked.len(), "no member is asked about twice: {asked:?}");
    assert!(victim.is_some() || asked.len() == members, "every member is asked about before there is no victim");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn each_policy_agrees_with_a_naive_one(calls in proptest::collection::vec(call(), 1..80)) {
        KINDS.iter().for_each(|kind| compare(*kind, &calls));
    }
}

/// Members of the hot set that a scan leaves, of 50.
fn left_by_a_scan(kind: PolicyKind) -> usize {
    let mut cache = Cache::new(kind, 100);
    for _ in 0..4 {
        walk(&mut cache, 0..50);
    }
    walk(&mut cache, 1000..3000);
    (0..50).filter(|id| cache.holds(*id)).count()
}

#[test]
fn a_scan_evicts_the_hot_set_under_lru_alone() {
    assert_eq!(left_by_a_scan(PolicyKind::Lru), 0);
    assert_eq!(left_by_a_scan(PolicyKind::Sieve), 50);
    assert_eq!(left_by_a_scan(PolicyKind::S3Fifo), 50);
}

#[test]
fn hit_ratios_on_a_zipf_trace_are_lru_s_at_least() {
    for (skew, capacity) in [(0.7, 2_000), (0.9, 2_000), (1.0, 500), (1.1, 10_000)] {
        let ratios = KINDS.map(|kind| policies::cache::zipf(kind, skew, capacity));
        println!(
            "zipf {skew}, {capacity:6} bytes: LRU {:.4} SIEVE {:.4} S3-FIFO {:.4}",
            ratios[0], ratios[1], ratios[2]
        );
        assert!(ratios[1] >= ratios[0] && ratios[2] >= ratios[0], "{ratios:?}");
    }
}
