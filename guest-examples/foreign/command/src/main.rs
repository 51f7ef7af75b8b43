//! A program that knows nothing of queues. The first word of its standard input says what it does:
//!
//! * `exit N`: ends with that code;
//! * `env NAME`: prints that variable, or fails;
//! * `hog`, `spin`, `panic`, `flood`: what its name says;
//! * anything else: prints it.

use std::io::Read;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut input = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut input) {
        eprintln!("cannot read: {error}");
        return ExitCode::FAILURE;
    }
    let (word, rest) = input.split_once(' ').unwrap_or((&input, ""));
    match word {
        "exit" => {
            eprintln!("exit with {rest}");
            // The standard library knows success and failure alone.
            wasip2::cli::exit::exit_with_code(rest.trim().parse().unwrap_or(1));
        }
        "env" => match std::env::var(rest) {
            Ok(value) => println!("{value}"),
            Err(error) => {
                eprintln!("{rest}: {error}");
                return ExitCode::FAILURE;
            }
        },
        "hog" => {
            let mut all = Vec::new();
            loop {
                all.push(vec![1_u8; 1 << 20]);
            }
        }
        "spin" => loop {
            std::hint::spin_loop();
        },
        "flood" => loop {
            println!("{}", "x".repeat(100));
        },
        "panic" => panic!("asked to"),
        _ => println!("{input}"),
    }
    ExitCode::SUCCESS
}
