//! Medians and how they are printed.

/// The middle value; NaN of none. Sorts the values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Median, least and most, with so many decimals; `-` of none.
pub fn cell(values: &mut [f64], decimals: usize) -> String {
    let middle = median(values);
    match (values.first(), values.last()) {
        (Some(low), Some(high)) => format!("{middle:.decimals$} ({low:.decimals$}-{high:.decimals$})"),
        _ => "-".to_owned(),
    }
}

/// A quotient; `-` where one side is missing.
pub fn ratio(x: f64) -> String {
    if x.is_finite() {
        format!("{x:.2}")
    } else {
        "-".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0]), 2.5);
        assert_eq!(cell(&mut [2.0, 1.0, 3.0], 1), "2.0 (1.0-3.0)");
        assert_eq!(cell(&mut [2.0, 1.25], 2), "1.62 (1.25-2.00)");
        assert_eq!(cell(&mut [], 1), "-");
        assert_eq!(ratio(1.234), "1.23");
        assert_eq!(ratio(f64::NAN), "-");
    }
}
