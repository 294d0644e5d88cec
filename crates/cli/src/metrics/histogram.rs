//! A histogram as Prometheus has it: each bucket counts all that are not larger.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Counts of values, by upper bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Of those in this bucket alone; one more than there are bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty one with these bounds, in order.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts one value.
    pub fn observe(&mut self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Bounds, counts and sum; each count is of its bucket alone.
    pub fn figures(&self) -> Value {
        json!({ "bounds": self.bounds, "counts": self.counts, "sum": self.sum })
    }

    /// Writes it under `name`, with these labels besides its own.
    pub fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut so_far = 0;
        let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".into()]);
        for (bound, count) in bounds.zip(&self.counts) {
            so_far += count;
            // Writing to a string does not fail.
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {so_far}");
        }
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {so_far}", self.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        [0.25, 0.5, 0.75, 9.0].into_iter().for_each(|value| histogram.observe(value));
        let mut out = String::new();
        histogram.write(&mut out, "x", "a=\"b\"");
        assert_eq!(
            out,
            "x_bucket{a=\"b\",le=\"0.5\"} 2\nx_bucket{a=\"b\",le=\"1\"} 3\nx_bucket{a=\"b\",le=\"+Inf\"} 4\n\
             x_sum{a=\"b\"} 10.5\nx_count{a=\"b\"} 4\n"
        );
    }
}
