//! How much memory this process may still take, and whether a model fits.

use std::io;

use crate::cgroup;
use crate::model::ModelError;

/// What a model takes, as a function of its context.
pub(crate) struct Needs {
    /// The weights.
    pub weights_bytes: u64,
    /// Keys and values of one token.
    pub kv_per_token_bytes: u64,
    /// Columns of the widest value.
    pub widest: u64,
    /// Columns of the logits.
    pub vocab: u64,
    /// Most tokens of a step.
    pub max_step_tokens: u64,
}

impl Needs {
    /// Intermediates of a step: a few rows of the widest values, and the logits of one row.
    fn scratch_bytes(&self, ctx: u64) -> u64 {
        let rows = self.max_step_tokens.min(ctx);
        let values = self.widest.saturating_mul(rows).saturating_mul(8 * 4);
        values.saturating_add(self.vocab.saturating_mul(8))
    }

    fn total_bytes(&self, ctx: u64) -> u64 {
        let kv = self.kv_per_token_bytes.saturating_mul(ctx);
        kv.saturating_add(self.weights_bytes)
            .saturating_add(self.scratch_bytes(ctx))
    }

    /// Refuses a context that needs more than `limit_bytes`, naming the largest that fits.
    pub(crate) fn check(&self, ctx: usize, limit_bytes: u64) -> Result<(), ModelError> {
        let wanted = ctx as u64;
        let needed_bytes = self.total_bytes(wanted);
        if needed_bytes <= limit_bytes {
            return Ok(());
        }
        // The need grows with the context: `fits` does, `too_many` does not.
        let (mut fits, mut too_many) = (0, wanted);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if self.total_bytes(middle) <= limit_bytes {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        Err(ModelError::DoesNotFit {
            ctx,
            needed_bytes,
            weights_bytes: self.weights_bytes,
            kv_bytes: self.kv_per_token_bytes.saturating_mul(wanted),
            scratch_bytes: self.scratch_bytes(wanted),
            limit_bytes,
            largest_ctx: fits as usize,
        })
    }
}

/// Says of a file that could not be mapped or read for want of memory how much was asked for, and what helps; any other
/// error stays as it is.
pub(crate) fn explain(error: io::Error, needed_bytes: u64) -> io::Error {
    if error.kind() != io::ErrorKind::OutOfMemory {
        return error;
    }
    let free = available_bytes().map_or(String::new(), |n| format!(", {n} are free"));
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!("does not fit into memory: its {needed_bytes} bytes are needed{free}; {MORE_ROOM}"),
    )
}

/// What helps where nothing fits.
pub(crate) const MORE_ROOM: &str = "free memory, raise the limit on this process (ulimit -v, the container's), or use a \
smaller or more strongly quantised model";

/// Bytes that are free to this process: the least of the system's available memory, the limits of control groups and the limit on
/// address space. `None` where the system does not say.
pub(crate) fn available_bytes() -> Option<u64> {
    let limits = [meminfo(), cgroup::available_bytes(), address_space()];
    limits.into_iter().flatten().min()
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

fn meminfo() -> Option<u64> {
    kib_field(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn address_space() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|l| l.starts_with("Max address space"))?;
    let limit = line.split_whitespace().nth(3)?.parse::<u64>().ok()?;
    let used = kib_field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmSize:").unwrap_or(0);
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs {
        weights_bytes: 1000,
        kv_per_token_bytes: 10,
        widest: 1,
        vocab: 1,
        max_step_tokens: 4,
    };

    #[test]
    fn the_largest_context_that_fits_is_named() {
        let total = NEEDS.total_bytes(50);
        assert!(NEEDS.check(50, total).is_ok());
        let error = NEEDS.check(51, total).unwrap_err();
        assert!(
            matches!(error, ModelError::DoesNotFit { largest_ctx: 50, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("at most --ctx 50 fits"), "{error}");
        // Short contexts take fewer rows of scratch too.
        let error = NEEDS.check(1 << 20, NEEDS.total_bytes(1)).unwrap_err();
        assert!(
            matches!(error, ModelError::DoesNotFit { largest_ctx: 1, .. }),
            "{error}"
        );
    }

    #[test]
    fn where_nothing_fits_no_context_is_offered() {
        let error = NEEDS.check(100, NEEDS.total_bytes(1) - 1).unwrap_err().to_string();
        assert!(!error.contains("--ctx"), "{error}");
        for part in [
            "1000 weights",
            "1049 are free",
            "not even one token",
            "ulimit",
            "smaller",
        ] {
            assert!(error.contains(part), "`{error}` does not say `{part}`");
        }
    }

    #[test]
    fn absurd_sizes_are_refused_without_overflow() {
        let needs = Needs {
            weights_bytes: u64::MAX,
            kv_per_token_bytes: u64::MAX,
            widest: u64::MAX,
            vocab: u64::MAX,
            max_step_tokens: u64::MAX,
        };
        assert!(needs.check(usize::MAX, 1 << 40).is_err());
    }

    #[test]
    fn want_of_memory_is_told_with_its_cure() {
        let error = explain(io::ErrorKind::OutOfMemory.into(), 123).to_string();
        assert!(error.contains("123 bytes") && error.contains("ulimit"), "{error}");
        let other = explain(io::ErrorKind::NotFound.into(), 123);
        assert_eq!(other.kind(), io::ErrorKind::NotFound);
    }
}
