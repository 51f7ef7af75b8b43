//! An HTTP handler that knows nothing of queues. The first word of the request's body says how it responds:
//!
//! * `status N [SECONDS]`: with that status, the request's headers as its body, and `Retry-After`;
//! * `silent`: not at all;
//! * `late`: with 200, and panics then;
//! * `linger`: with 204, and goes on for 100 ms;
//! * `flood`: with a body without end;
//! * `large N`: with 500 and a body of N bytes.

use wasip2::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

struct Handler;

wasip2::http::proxy::export!(Handler);

impl wasip2::exports::http::incoming_handler::Guest for Handler {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let method = request.method();
        let mut shown = format!("{method:?} {:?}\n", request.path_with_query());
        for (name, value) in request.headers().entries() {
            shown.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(&value)));
        }
        let body = String::from_utf8_lossy(&read(&request)).into_owned();
        let words: Vec<&str> = body.split(' ').collect();
        match words[..] {
            ["silent"] => {}
            ["late"] => {
                respond(out, 200, None, [b"x".to_vec()]);
                panic!("after the response");
            }
            ["linger"] => {
                respond(out, 204, None, []);
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            ["flood"] => respond(out, 200, None, std::iter::repeat_with(|| vec![b'x'; 4096])),
            ["large", n] => {
                let chunk = vec![b'y'; n.parse().unwrap_or(0)];
                respond(out, 500, None, chunk.chunks(4096).map(<[u8]>::to_vec));
            }
            ["status", status] => respond(out, number(status), None, [shown.into_bytes()]),
            ["status", status, after] => {
                respond(out, number(status), Some(after), [shown.into_bytes()]);
            }
            _ => respond(out, 400, None, [body.into_bytes()]),
        }
    }
}

fn number(text: &str) -> u16 {
    text.parse().unwrap_or(500)
}

fn read(request: &IncomingRequest) -> Vec<u8> {
    let mut all = Vec::new();
    let Ok(body) = request.consume() else {
        return all;
    };
    let Ok(stream) = body.stream() else {
        return all;
    };
    while let Ok(chunk) = stream.blocking_read(4096) {
        all.extend(chunk);
    }
    all
}

fn respond(
    out: ResponseOutparam,
    status: u16,
    retry_after: Option<&str>,
    chunks: impl IntoIterator<Item = Vec<u8>>,
) {
    let fields = Fields::new();
    if let Some(after) = retry_after {
        let _ = fields.set("retry-after", &[after.as_bytes().to_vec()]);
    }
    let response = OutgoingResponse::new(fields);
    let _ = response.set_status_code(status);
    let Ok(body) = response.body() else { return };
    ResponseOutparam::set(out, Ok(response));
    if let Ok(stream) = body.write() {
        for chunk in chunks {
            if stream.blocking_write_and_flush(&chunk).is_err() {
                break;
            }
        }
    }
    let _ = OutgoingBody::finish(body, None);
}
