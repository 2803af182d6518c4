//! Stdout that ends the program quietly when nobody reads it any more, as other filters do, and that names itself in
//! errors.

use std::io::{self, BufWriter, Write};

/// Buffered stdout; [`Stdout::finish`] writes the rest and tells of its errors.
pub struct Stdout(BufWriter<io::StdoutLock<'static>>);

/// Opens stdout for the rest of a command.
pub fn stdout() -> Stdout {
    Stdout(BufWriter::new(io::stdout().lock()))
}

impl Stdout {
    /// Writes what is still buffered.
    ///
    /// # Errors
    /// As any write.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }
}

/// Ends the program when the reader is gone; any other error says that stdout is meant.
fn checked<T>(outcome: io::Result<T>) -> io::Result<T> {
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => std::process::exit(0),
        // `write_all` goes on after these.
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("stdout: {error}; the output is incomplete")),
    })
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        checked(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        checked(self.0.flush())
    }
}
