//! Numbers for people.

use std::time::Duration;

/// `12.3 MB`: three digits, decimal prefixes.
pub fn scaled(n: f64, unit: &str) -> String {
    for (factor, prefix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if n >= factor {
            return format!("{} {prefix}{unit}", three(n / factor));
        }
    }
    format!("{n:.0} {unit}")
}

/// Three significant digits of a number below 1000.
pub fn three(n: f64) -> String {
    let decimals = match n.abs() {
        x if x >= 100.0 => 0,
        x if x >= 10.0 => 1,
        x if x >= 1.0 => 2,
        _ => 3,
    };
    format!("{n:.decimals$}")
}

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// `a / b` as a number of billions per second; 0 where no time has passed.
pub fn giga_per_s(n: u64, time: Duration) -> f64 {
    let rate = n as f64 / time.as_secs_f64() / 1e9;
    if rate.is_finite() { rate } else { 0.0 }
}

/// `a / b`, 0 where `b` is.
pub fn ratio(a: Duration, b: Duration) -> f64 {
    let ratio = a.as_secs_f64() / b.as_secs_f64();
    if ratio.is_finite() { ratio } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        assert_eq!(scaled(1_234_567.0, "B"), "1.23 MB");
        assert_eq!(scaled(999.0, "B"), "999 B");
        assert_eq!(scaled(0.0, "op"), "0 op");
        assert_eq!(scaled(2.5e12, "op"), "2.50 Top");
        assert_eq!([three(0.1234), three(12.34), three(512.4)], ["0.123", "12.3", "512"]);
    }

    #[test]
    fn nothing_in_no_time_is_no_rate() {
        let none = Duration::ZERO;
        assert_eq!(
            (giga_per_s(0, none), giga_per_s(1, none), ratio(none, none)),
            (0.0, 0.0, 0.0)
        );
    }
}
