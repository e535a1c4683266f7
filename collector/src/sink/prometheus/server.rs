//! Who asks, and what they get. One thread; each connection is a task that ends by itself after [`LONGEST`].

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Log, Now, Shared, exposition, lock, node};

/// Connections at the same time; a further one is closed at once.
const MAX_CONNECTIONS: usize = 64;
/// A connection lives no longer than this, whatever its client does.
const LONGEST: Duration = Duration::from_secs(10);
/// Nobody is accepted this long after the kernel had no descriptor or no memory for a connection.
const REST: Duration = Duration::from_secs(1);

/// A page older than this says nothing of now: ticks come about once a second.
pub(super) const OLD: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const INDEX: &str =
    "<!doctype html><title>rdmascope</title><h1>rdmascope</h1><p><a href=\"/metrics\">Metrics</a></p>\n";

/// The page of what is exported, made once and kept until something else is.
#[derive(Default)]
struct Page {
    of: Option<Arc<Now>>,
    text: Bytes,
}

/// Accepts until the end.
pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>, log: Log) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let page = Arc::new(std::sync::Mutex::new(Page::default()));
    let mut said = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.ended.notified() => return,
        };
        match (accepted, free.clone().try_acquire_owned()) {
            (Ok((stream, _)), Ok(place)) => {
                tokio::spawn(serve(stream, place, shared.clone(), page.clone()));
            }
            (Ok(_), Err(_)) => lock(&shared.status).refused += 1,
            (Err(error), _) => {
                lock(&shared.status).failed += 1;
                if !said {
                    log(&format!("Prometheus: cannot accept a connection: {error}"));
                    said = true;
                }
                tokio::time::sleep(REST).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, place: OwnedSemaphorePermit, shared: Arc<Shared>, page: Arc<std::sync::Mutex<Page>>) {
    let answers = service_fn(|request| {
        let response = answer(&request, &shared, &page);
        async { Ok::<_, Infallible>(response) }
    });
    // One request for each connection: an idle one would only take a place.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LONGEST)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answers);
    if !matches!(tokio::time::timeout(LONGEST, connection).await, Ok(Ok(()))) {
        lock(&shared.status).failed += 1;
    }
    drop(place);
}

fn answer(request: &Request<Incoming>, shared: &Shared, page: &std::sync::Mutex<Page>) -> Response<Full<Bytes>> {
    let of = |status, kind: &'static str, body: Bytes| {
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    };
    let words =
        |status, words: &'static str| of(status, "text/plain; charset=utf-8", Bytes::from_static(words.as_bytes()));
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            let now = lock(&shared.now).clone();
            // A first read that hangs is no node of which there is nothing to say.
            let why = match now.at {
                None => Some("nothing was collected yet\n"),
                Some(at) if at.elapsed() > OLD => Some("nothing was collected for more than 10 s\n"),
                Some(_) => None,
            };
            if let Some(why) = why {
                lock(&shared.status).failed += 1;
                return words(StatusCode::SERVICE_UNAVAILABLE, why);
            }
            lock(&shared.status).served += 1;
            of(StatusCode::OK, TEXT, text(now, page))
        }
        (&Method::GET, "/") => of(StatusCode::OK, "text/html; charset=utf-8", Bytes::from_static(INDEX.as_bytes())),
        (_, "/metrics" | "/") => {
            let mut response = words(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            response
        }
        _ => words(StatusCode::NOT_FOUND, "there is /metrics\n"),
    }
}

fn text(now: Arc<Now>, page: &std::sync::Mutex<Page>) -> Bytes {
    let mut page = lock(page);
    if !page.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &now)) {
        // As long as the last one, and some more.
        let room = (page.text.len() + 4_096).max(64 * 1024);
        page.text = render(&now, room).into();
        page.of = Some(now);
    }
    page.text.clone()
}

/// The whole page; `room` is how long it may be expected to be, bytes.
pub(super) fn render(now: &Now, room: usize) -> String {
    let mut page = String::with_capacity(room);
    node::write(&mut page, &now.node);
    now.families.iter().for_each(|family| exposition::write(&mut page, family));
    page
}
