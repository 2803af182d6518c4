//! Shapes of a picture, and scales from values to its units.

use super::escape;

/// A picture of these units.
pub fn picture(width: f64, height: f64, label: &str, content: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n{content}</svg>\n",
        escape(label)
    )
}

/// A line through these points.
pub fn path(class: &str, points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polyline class=\"{class}\" points=\"{}\"/>\n", points.join(" "))
}

/// Text; `anchor` is `start`, `middle` or `end`.
pub fn text(x: f64, y: f64, anchor: &str, class: &str, text: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>\n",
        escape(text)
    )
}

/// A logarithmic scale from values `low..high` to `from..to`.
#[derive(Clone, Copy)]
pub struct Log {
    pub low: f64,
    pub high: f64,
    pub from: f64,
    pub to: f64,
}

impl Log {
    /// Where a value lies; what is outside lies on the border.
    pub fn at(&self, value: f64) -> f64 {
        let share = (value.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * share
    }

    /// The powers of ten within.
    pub fn ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low.log10().ceil() as i32, self.high.log10().floor() as i32);
        (low..=high).map(|e| 10f64.powi(e)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_even() {
        let scale = Log {
            low: 1.0,
            high: 100.0,
            from: 0.0,
            to: 10.0,
        };
        for (value, at) in [(1.0, 0.0), (10.0, 5.0), (100.0, 10.0), (0.0, 0.0), (1e9, 10.0)] {
            assert!((scale.at(value) - at).abs() < 1e-9, "{value}");
        }
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn labels_are_text() {
        assert!(text(0.0, 0.0, "start", "", "<b>").contains("&lt;b&gt;"));
    }
}
