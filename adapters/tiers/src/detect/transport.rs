//! How a disk is connected, by the names that sysfs has for it.
//!
//! Promises upward: a name is one of these; which of them decide by themselves what the disk is.
//! Asks from below: nothing: names are given.

use super::kind::TierKind;
use serde::Serialize;

/// How a disk is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// NVMe.
    Nvme,
    /// eMMC: flash that is soldered in.
    Emmc,
    /// An SD or microSD card.
    Card,
    /// UFS: flash that is soldered in.
    Ufs,
    /// SATA.
    Ata,
    /// USB, whatever is behind it.
    Usb,
    /// SCSI: SAS, iSCSI, a RAID controller.
    Scsi,
    /// A disk that a hypervisor makes: virtio, Xen, Hyper-V.
    Virtual,
    /// A file as a disk.
    Loop,
    /// Memory as a disk: zram, ram.
    Memory,
    /// Another name.
    Unknown,
}

impl Transport {
    /// What it is for sure.
    pub fn tier_kind(self) -> Option<TierKind> {
        match self {
            Self::Nvme => Some(TierKind::Nvme),
            Self::Emmc | Self::Card | Self::Ufs => Some(TierKind::Ssd),
            _ => None,
        }
    }

    /// For people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Nvme => "NVMe",
            Self::Emmc => "eMMC, flash",
            Self::Card => "an SD card, flash",
            Self::Ufs => "UFS, flash",
            Self::Ata => "on SATA",
            Self::Usb => "on USB",
            Self::Scsi => "on SCSI",
            Self::Virtual => "a virtual disk",
            Self::Loop => "a file as a disk",
            Self::Memory => "memory as a disk",
            Self::Unknown => "of no known kind",
        }
    }

    /// By the disk's name, and by the folders under `/sys` that lead to it. What is nearer to the disk is asked first:
    /// a SATA disk in a USB case is USB's.
    pub(super) fn new(name: &str, folders: &[&str], card: bool) -> Self {
        let named = [("nvme", Self::Nvme), ("loop", Self::Loop), ("zram", Self::Memory), ("xvd", Self::Virtual)];
        let starts = |text: &str, what: &str| text.starts_with(what);
        let numbered = |text: &str, what: &str| {
            text.strip_prefix(what).is_some_and(|end| !end.is_empty() && end.bytes().all(|c| c.is_ascii_digit()))
        };
        let on = |what: &str| folders.iter().any(|folder| numbered(folder, what));
        if let Some((_, found)) = named.into_iter().find(|(what, _)| starts(name, what)) {
            found
        } else if starts(name, "mmcblk") {
            if card { Self::Card } else { Self::Emmc }
        } else if numbered(name, "ram") {
            Self::Memory
        } else if on("usb") {
            Self::Usb
        } else if on("ata") {
            Self::Ata
        } else if on("virtio") || folders.iter().any(|folder| starts(folder, "vmbus") || starts(folder, "VMBUS")) {
            Self::Virtual
        } else if folders.iter().any(|folder| folder.contains("ufshc") || folder.contains("ufshcd")) {
            Self::Ufs
        } else if starts(name, "sd") {
            Self::Scsi
        } else {
            Self::Unknown
        }
    }
}

/// A disk, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drive {
    /// As the system names it.
    pub name: String,
    /// What its maker calls it.
    pub model: Option<String>,
    /// How it is connected.
    pub transport: Transport,
    /// What it says of itself; not to be believed.
    pub rotational: Option<bool>,
    /// Bytes of the smallest thing that it moves.
    pub sector_bytes: Option<u32>,
}
