//! The `testbed` program; everything it does is in the library.

fn main() -> std::process::ExitCode {
    testbed::cli::main()
}
