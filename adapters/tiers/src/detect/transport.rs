//! Derives the transport of a disk from its names in sysfs.
//!
//! Promises upward: every name yields one transport; some transports determine the kind of the disk.
//! Asks from below: nothing; the caller passes the names.

use super::kind::TierKind;
use serde::Serialize;

/// How a disk is connected. Serialised in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// NVMe.
    Nvme,
    /// eMMC: soldered flash.
    Emmc,
    /// An SD or microSD card.
    Card,
    /// UFS: soldered flash.
    Ufs,
    /// SATA.
    Ata,
    /// USB: the kind of the disk behind the USB bridge is unknown.
    Usb,
    /// SCSI: SAS, iSCSI, a RAID controller.
    Scsi,
    /// A hypervisor's disk: virtio, Xen, Hyper-V.
    Virtual,
    /// A loop device over a file.
    Loop,
    /// A disk in memory: zram, ram.
    Memory,
    /// An unknown name.
    Unknown,
}

impl Transport {
    /// The tier kind of a disk on this transport, if the transport alone determines the kind.
    pub fn tier_kind(self) -> Option<TierKind> {
        match self {
            Self::Nvme => Some(TierKind::Nvme),
            Self::Emmc | Self::Card | Self::Ufs => Some(TierKind::Ssd),
            _ => None,
        }
    }

    /// Text for people.
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

    /// Derives the transport from the disk's name and from the folders of its path under `/sys`. Names that determine
    /// the transport are matched first, then the folders, USB before SATA: a SATA disk in a USB case counts as USB.
    /// `card`: the disk is an SD card, not eMMC.
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

/// A whole physical disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drive {
    /// Name of the disk in `/dev`, such as `sda`.
    pub name: String,
    /// Its model name.
    pub model: Option<String>,
    /// Its transport.
    pub transport: Transport,
    /// Whether the disk reports that it rotates (`queue/rotational` in sysfs); not reliable.
    pub rotational: Option<bool>,
    /// Size of a hardware sector in bytes.
    pub sector_bytes: Option<u32>,
}
