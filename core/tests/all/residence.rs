//! Every transition of every reachable residence, beside a model that keeps a version number for each copy.

use std::collections::{HashMap, HashSet, VecDeque};
use terrace_core::residence::{Residence, ResidenceError, TIERS, Tier, Transition};

/// The model: what version each tier holds (`None`: no memory; version 0: bytes that mean nothing).
#[derive(Clone, Debug)]
struct Copies(Vec<Option<u32>>);

impl Copies {
    fn newest(&self) -> u32 {
        self.0.iter().flatten().copied().max().unwrap_or(0)
    }

    fn holders(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|tier| self.0[*tier] == Some(self.newest())).collect()
    }

    fn apply(&mut self, change: Transition) -> Result<(), ResidenceError> {
        let newest = self.newest();
        let first = self.holders()[0] as Tier;
        let read = |copies: &Self, tier: Tier| match copies.0[tier as usize] {
            None => Err(ResidenceError::NotPresent),
            Some(version) if version < newest => Err(ResidenceError::CopyFirst { from: first }),
            Some(_) => Ok(()),
        };
        match change {
            Transition::Reserve(tier) if self.0[tier as usize].is_some() => return Err(ResidenceError::AlreadyPresent),
            Transition::Reserve(tier) => self.0[tier as usize] = Some(0),
            Transition::Read(tier) => read(self, tier)?,
            Transition::Update(tier) => {
                read(self, tier)?;
                self.0[tier as usize] = Some(newest + 1);
            }
            Transition::Overwrite(tier) if self.0[tier as usize].is_none() => return Err(ResidenceError::NotPresent),
            Transition::Overwrite(tier) => self.0[tier as usize] = Some(newest + 1),
            Transition::Copy { from, to } if from == to => return Err(ResidenceError::SameTier),
            Transition::Copy { from, to } => {
                read(self, from)?;
                self.0[to as usize] = Some(newest);
            }
            Transition::Evict(tier) if self.0[tier as usize].is_none() => return Err(ResidenceError::NotPresent),
            Transition::Evict(tier) if self.holders() == [tier as usize] => return Err(ResidenceError::LastCopy),
            Transition::Evict(tier) => self.0[tier as usize] = None,
        }
        Ok(())
    }

    fn compare(&self, residence: Residence) {
        residence.check().expect("every invariant holds");
        for tier in 0..self.0.len() {
            assert_eq!(residence.present(tier as Tier), self.0[tier].is_some(), "{self:?}");
            assert_eq!(residence.valid(tier as Tier), self.holders().contains(&tier), "{self:?}");
        }
        assert_eq!(residence.best() as usize, self.holders()[0]);
        let older = self.0.iter().flatten().any(|version| *version < self.newest());
        let dirty = (self.holders().len() == 1 && older).then(|| self.holders()[0] as Tier);
        assert_eq!(residence.dirty(), dirty, "{self:?}");
    }
}

fn changes(tiers: Tier) -> Vec<Transition> {
    let one = (0..tiers).flat_map(|tier| {
        [
            Transition::Reserve(tier),
            Transition::Read(tier),
            Transition::Update(tier),
            Transition::Overwrite(tier),
            Transition::Evict(tier),
        ]
    });
    let two = (0..tiers).flat_map(|from| (0..tiers).map(move |to| Transition::Copy { from, to }));
    one.chain(two).collect()
}

/// Walks every residence that can be reached on so many tiers; returns how many there are.
fn walk(tiers: Tier) -> usize {
    let mut seen = HashSet::new();
    let mut queue = VecDeque::new();
    for tier in 0..tiers {
        let mut copies = Copies(vec![None; tiers as usize]);
        copies.0[tier as usize] = Some(1);
        queue.push_back((Residence::new(tier).expect("a tier"), copies));
    }
    while let Some((residence, copies)) = queue.pop_front() {
        if !seen.insert(residence) {
            continue;
        }
        copies.compare(residence);
        for change in changes(tiers) {
            let (mut next, mut model) = (residence, copies.clone());
            let (real, expected) = (next.apply(change), model.apply(change));
            assert_eq!(real, expected, "{change:?} on {copies:?}");
            if real.is_err() {
                assert_eq!(next, residence, "a refused change changes nothing");
            }
            model.compare(next);
            queue.push_back((next, model));
        }
    }
    seen.len()
}

#[test]
fn every_transition_agrees_with_the_model() {
    // Each tier is absent, old or newest, and one at least is newest: 3^n - 2^n residences.
    for (tiers, residences) in [(1, 1), (2, 5), (3, 19), (5, 211)] {
        assert_eq!(walk(tiers), residences);
    }
}

#[test]
fn the_five_residences_of_host_and_device_change_as_tabled() {
    const HOST: Tier = 0;
    const DEVICE: Tier = 1;
    let up = Transition::Copy { from: HOST, to: DEVICE };
    let down = Transition::Copy { from: DEVICE, to: HOST };
    let made = |start: Tier, changes: &[Transition]| {
        let mut residence = Residence::new(start).expect("a tier");
        changes.iter().for_each(|change| residence.apply(*change).expect("allowed"));
        residence
    };
    let named = HashMap::from([
        ("host only", made(HOST, &[])),
        ("device only", made(DEVICE, &[])),
        ("both", made(HOST, &[up])),
        ("host dirty", made(HOST, &[up, Transition::Update(HOST)])),
        ("device dirty", made(HOST, &[up, Transition::Update(DEVICE)])),
    ]);
    let old = |from| Err(ResidenceError::CopyFirst { from });
    let (last, none) = (Err(ResidenceError::LastCopy), Err(ResidenceError::NotPresent));
    let table = [
        ("host only", Transition::Read(HOST), Ok("host only")),
        ("host only", Transition::Update(HOST), Ok("host only")),
        ("host only", Transition::Read(DEVICE), none),
        ("host only", up, Ok("both")),
        ("host only", down, none),
        ("host only", Transition::Evict(HOST), last),
        ("host only", Transition::Reserve(DEVICE), Ok("host dirty")),
        ("device only", Transition::Update(DEVICE), Ok("device only")),
        ("device only", down, Ok("both")),
        ("device only", Transition::Evict(DEVICE), last),
        ("both", Transition::Update(HOST), Ok("host dirty")),
        ("both", Transition::Overwrite(DEVICE), Ok("device dirty")),
        ("both", Transition::Evict(HOST), Ok("device only")),
        ("both", Transition::Evict(DEVICE), Ok("host only")),
        ("host dirty", Transition::Read(DEVICE), old(HOST)),
        ("host dirty", Transition::Update(DEVICE), old(HOST)),
        ("host dirty", Transition::Overwrite(DEVICE), Ok("device dirty")),
        ("host dirty", up, Ok("both")),
        ("host dirty", down, old(HOST)),
        ("host dirty", Transition::Evict(HOST), last),
        ("host dirty", Transition::Evict(DEVICE), Ok("host only")),
        ("device dirty", Transition::Read(HOST), old(DEVICE)),
        ("device dirty", down, Ok("both")),
        ("device dirty", Transition::Evict(DEVICE), last),
        ("device dirty", Transition::Evict(HOST), Ok("device only")),
    ];
    for (before, change, after) in table {
        let mut residence = named[before];
        let result = residence.apply(change);
        match after {
            Ok(name) => assert_eq!((result, residence), (Ok(()), named[name]), "{before}, {change:?}"),
            Err(refusal) => assert_eq!((result, residence), (Err(refusal), named[before]), "{before}, {change:?}"),
        }
    }
}

#[test]
fn tiers_past_the_last_are_refused() {
    assert_eq!(Residence::new(TIERS), Err(ResidenceError::NoSuchTier));
    let mut residence = Residence::new(TIERS - 1).expect("the last tier");
    for change in changes(TIERS + 1).into_iter().filter(|change| format!("{change:?}").contains('8')) {
        assert_eq!(residence.apply(change), Err(ResidenceError::NoSuchTier), "{change:?}");
    }
    assert!(!residence.present(TIERS) && !residence.valid(u8::MAX));
    assert!(residence.valid(TIERS - 1));
}
