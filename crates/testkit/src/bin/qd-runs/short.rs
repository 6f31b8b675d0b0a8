//! Programs that end at once: their last words must not come after their end.

use qd_testkit::qd::Sandbox;

/// Runs so many short programs; true if `run.exited` was the last record of each, with everything before it.
pub(crate) async fn run(binary: &str, count: u64) -> bool {
    let qd = Sandbox::new(binary).up().await;
    let host = qd.runner_id().await;
    let expected: String = (1..=500).map(|number| format!("{number}\r\n")).collect();
    let mut broken = 0;
    for number in 1..=count {
        let mut app = qd.run_app().await;
        let run_id = app.start(&host, "exec seq 1 500", "/tmp").await;
        app.event(&run_id, "run.exited").await;
        if number % 10 == 0 {
            // Whatever might come late has the time to.
            app.settle().await;
        }
        let last = app.seqs(&run_id).last().map(|(kind, _)| kind.clone());
        if last.as_deref() != Some("run.exited") || app.output(&run_id) != expected {
            broken += 1;
            println!("BROKEN: run {number}: last {last:?}, {} bytes", app.output(&run_id).len());
        }
    }
    println!("short runs: {} of {count} had run.exited last and all their output before it", count - broken);
    qd.terminate().await;
    broken == 0
}
