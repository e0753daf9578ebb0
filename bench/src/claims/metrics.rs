//! What a controller says about itself.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const RECONCILES: &str = "controller_runtime_reconcile_total";
const PATIENCE: Duration = Duration::from_secs(2);

/// Passes of all controllers so far; an error if it cannot be asked, none if it does not count them.
pub(crate) async fn reconciles(url: &str) -> Result<Option<f64>> {
    let text = tokio::time::timeout(PATIENCE, scrape(url)).await;
    Ok(sum(&text.context("waiting for metrics")??, RECONCILES))
}

async fn scrape(url: &str) -> Result<String> {
    let rest = url.strip_prefix("http://").context("not an http:// URL")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
    let mut stream = TcpStream::connect(host).await?;
    let ask = format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let is_success = head.split(' ').nth(1) == Some("200");
    ensure!(is_success, "{}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

/// The sum of a metric over all its labels.
fn sum(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = match rest.strip_prefix('{') {
            // a label's value may hold anything but is followed by the last brace
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        rest.split_whitespace().next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or_default() + value))
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE passes counter\n\
            passes{controller=\"a\",result=\"ok\"} 12\n\
            passes{controller=\"b } 5\"} 3 1700000000\n\
            passes_of_others{controller=\"a\"} 100\n\
            other 4\n";
        assert_eq!(sum(text, "passes"), Some(15.0));
        assert_eq!(sum(text, "other"), Some(4.0));
        assert_eq!(sum(text, "missing"), None);
    }
}
