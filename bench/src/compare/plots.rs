//! The plots as SVG.

use super::client::{ALL, Client, LOCKS};
use super::contention::CONTENDERS;
use super::results::Results;
use crate::Error;
use crate::statistics::quantile;
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (960, 420);
const WORK_MILLIS: u64 = 50;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Line = (Client, Vec<(f64, f64)>);

fn colour(client: Client) -> RGBColor {
    match client {
        Client::Ours => RGBColor(200, 40, 30),
        Client::BareSdk => RGBColor(120, 120, 120),
        Client::Java => RGBColor(30, 90, 180),
        Client::Go => RGBColor(0, 140, 140),
        Client::Python => RGBColor(200, 150, 0),
    }
}

/// The time of a hand-over and the requests of a turn, by the number of contenders.
pub(crate) fn contention(results: &Results, path: &Path) -> Result<(), Error> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let lines = |figure: fn((f64, f64)) -> f64| -> Vec<Line> {
        let point = |client, contenders| {
            let measured = results.contended(client, contenders, WORK_MILLIS)?;
            // With one contender, the rest after the work may be smaller than the noise of the work.
            Some((f64::from(contenders), figure(measured).max(0.1)))
        };
        let line = |client| (client, CONTENDERS.iter().filter_map(|contenders| point(client, *contenders)).collect());
        LOCKS.into_iter().map(line).collect()
    };
    let (left, right) = root.split_horizontally(SIZE.0 / 2);
    plot(&left, "hand-over, ms (50 ms of work)", "contenders", &lines(|measured| measured.0))?;
    plot(&right, "requests for each turn", "contenders", &lines(|measured| measured.1))?;
    root.present()?;
    Ok(())
}

/// The fraction of acquires, and of releases, that took at most a given time.
pub(crate) fn latency(results: &Results, path: &Path) -> Result<(), Error> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(SIZE.0 / 2);
    // By quantiles, without the last of a thousand, so that one outlier does not set the scale.
    let distribution =
        |sorted: &[f64]| (1..=999).map(|n| (f64::from(n) / 10.0, quantile(sorted, f64::from(n) / 1e3) / 1e3)).collect();
    let lines = |acquire: bool| -> Vec<Line> {
        let line = |client| {
            let latencies = results.latencies(client);
            (client, distribution(if acquire { &latencies.acquire } else { &latencies.release }))
        };
        ALL.into_iter().map(line).collect()
    };
    plot(&left, "acquire, ms", "percent of calls", &lines(true))?;
    plot(&right, "release, ms", "percent of calls", &lines(false))?;
    root.present()?;
    Ok(())
}

/// Lines on a logarithmic scale, with a legend.
fn plot(area: &Area<'_>, title: &str, below: &str, lines: &[Line]) -> Result<(), Error> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let (least, most) = points().fold((f64::MAX, f64::MIN), |(least, most), (_, y)| (least.min(*y), most.max(*y)));
    let last = points().fold(0.0_f64, |last, (x, _)| last.max(*x));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..last, (least * 0.8..most * 1.25).log_scale())?;
    chart.configure_mesh().x_desc(below).light_line_style(TRANSPARENT).draw()?;
    for (client, points) in lines {
        let colour = colour(*client);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(client.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}
