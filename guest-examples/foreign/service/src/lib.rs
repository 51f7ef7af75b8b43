//! An HTTP handler of WASI 0.3 that knows nothing of queues. The first word of the request's body says how it responds:
//!
//! * `status N [SECONDS]`: with that status, the request's headers as its body, and `Retry-After`;
//! * `error`: with an error in the place of a response;
//! * `late`: with 200, and panics before its body has ended;
//! * `broken`: with 200, and an error at the end of its body;
//! * `linger`: with 204, and ends its body 100 ms later;
//! * `flood`: with a body without end;
//! * `large N`: with 500 and a body of N bytes.

use std::time::Duration;

use wasip3::clocks::monotonic_clock;
use wasip3::http::types::{ErrorCode, Fields, Request, Response, Trailers};
use wasip3::{wit_future, wit_stream};

struct Service;

wasip3::http::service::export!(Service);

/// How a response goes on after its head.
enum Rest {
    Bytes(Vec<u8>),
    Endless,
    Panic,
    Later,
    Broken,
}

impl wasip3::exports::http::handler::Guest for Service {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let method = request.get_method();
        let mut shown = format!("{method:?} {:?}\n", request.get_path_with_query());
        for (name, value) in request.get_headers().copy_all() {
            shown.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(&value)));
        }
        let (_, done) = wit_future::new(|| Ok(()));
        let (body, _) = Request::consume_body(request, done);
        let body = String::from_utf8_lossy(&body.collect().await).into_owned();
        let words: Vec<&str> = body.split(' ').collect();
        let shown = Rest::Bytes(shown.into_bytes());
        Ok(match words[..] {
            ["error"] => return Err(ErrorCode::LoopDetected),
            ["late"] => respond(200, None, Rest::Panic),
            ["broken"] => respond(200, None, Rest::Broken),
            ["linger"] => respond(204, None, Rest::Later),
            ["flood"] => respond(200, None, Rest::Endless),
            ["large", n] => {
                let bytes = vec![b'y'; n.parse().unwrap_or(0)];
                respond(500, None, Rest::Bytes(bytes))
            }
            ["status", status] => respond(number(status), None, shown),
            ["status", status, after] => respond(number(status), Some(after), shown),
            _ => respond(400, None, Rest::Bytes(body.into_bytes())),
        })
    }
}

fn number(text: &str) -> u16 {
    text.parse().unwrap_or(500)
}

fn respond(status: u16, retry_after: Option<&str>, rest: Rest) -> Response {
    let fields = Fields::new();
    if let Some(after) = retry_after {
        let _ = fields.set("retry-after", &[after.as_bytes().to_vec()]);
    }
    let (mut writer, body) = wit_stream::new();
    let (ended, trailers) = wit_future::new(|| Ok(None));
    let (response, _) = Response::new(fields, Some(body), trailers);
    let _ = response.set_status_code(status);
    wit_bindgen::spawn_local(async move {
        let none: Option<Trailers> = None;
        let end = match rest {
            Rest::Broken => Err(ErrorCode::LoopDetected),
            _ => Ok(none),
        };
        match rest {
            Rest::Broken => {}
            Rest::Bytes(bytes) => drop(writer.write_all(bytes).await),
            Rest::Endless => while writer.write_all(vec![b'x'; 4096]).await.is_empty() {},
            Rest::Panic => panic!("after the response"),
            Rest::Later => monotonic_clock::wait_for(nanos(Duration::from_millis(100))).await,
        }
        drop(writer);
        let _ = ended.write(end).await;
    });
    response
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
