//! `strftime_now`: the time of day in UTC, or a fixed one so that a rendering can be repeated.

use std::time::{SystemTime, UNIX_EPOCH};

/// Where templates get the time from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// Seconds since 1970-01-01 00:00 UTC.
    Fixed(i64),
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

impl Clock {
    /// The time as C's `strftime` writes it in the C locale.
    pub(super) fn format(self, format: &str) -> String {
        let seconds = match self {
            Self::Fixed(s) => s.clamp(-60_000_000_000, 250_000_000_000),
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_secs() as i64),
        };
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let year_day = days - days_from_civil(year, 1, 1) + 1;
        let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
        let h12 = if h % 12 == 0 { 12 } else { h % 12 };
        let month_name = MONTHS[(month - 1) as usize];
        let day_name = DAYS[days.rem_euclid(7) as usize];
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut code = chars.next();
            let unpadded = code == Some('-');
            if unpadded {
                code = chars.next();
            }
            let pad = |n: i64, width: usize| {
                if unpadded {
                    n.to_string()
                } else {
                    format!("{n:0width$}")
                }
            };
            match code {
                Some('Y') => out.push_str(&year.to_string()),
                Some('y') => out.push_str(&pad(year.rem_euclid(100), 2)),
                Some('m') => out.push_str(&pad(month, 2)),
                Some('d') => out.push_str(&pad(day, 2)),
                Some('e') => out.push_str(&if unpadded { day.to_string() } else { format!("{day:2}") }),
                Some('H') => out.push_str(&pad(h, 2)),
                Some('I') => out.push_str(&pad(h12, 2)),
                Some('M') => out.push_str(&pad(m, 2)),
                Some('S') => out.push_str(&pad(s, 2)),
                Some('j') => out.push_str(&pad(year_day, 3)),
                Some('p') => out.push_str(if h < 12 { "AM" } else { "PM" }),
                Some('B') => out.push_str(month_name),
                Some('b' | 'h') => out.push_str(&month_name[..3]),
                Some('A') => out.push_str(day_name),
                Some('a') => out.push_str(&day_name[..3]),
                Some('F') => out.push_str(&self.format("%Y-%m-%d")),
                Some('T' | 'X') => out.push_str(&self.format("%H:%M:%S")),
                Some('R') => out.push_str(&self.format("%H:%M")),
                Some('D' | 'x') => out.push_str(&self.format("%m/%d/%y")),
                Some('c') => out.push_str(&self.format("%a %b %e %H:%M:%S %Y")),
                Some('s') => out.push_str(&seconds.to_string()),
                Some('n') => out.push('\n'),
                Some('%') => out.push('%'),
                Some('z' | 'Z') => {}
                Some(other) => out.extend(['%', other]),
                None => out.push('%'),
            }
        }
        out
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar (Hinnant's algorithm, years beginning in March).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day: the inverse of [`days_from_civil`].
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (
        yoe + era * 400 + i64::from(month <= 2),
        month,
        doy - (153 * mp + 2) / 5 + 1,
    )
}
