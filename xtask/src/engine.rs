//! The commands that run models, in an xtask without them: each runs xtask again with its feature `engine`, so that all
//! others are there after a build of seconds.

use std::ffi::OsString;
use std::process::Command;

use crate::{Outcome, sh};

/// What the command is given, passed on as it is: `--help` as well.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<OsString>,
}

macro_rules! passed_on {
    ($($module:ident $name:literal)*) => {$(
        pub mod $module {
            pub use super::Args;

            pub fn run(args: &Args) -> crate::Outcome {
                super::run($name, &args.rest)
            }
        }
    )*};
}

passed_on! { device_check "device-check" goldens "goldens" models "models" }

pub mod test {
    pub fn run() -> crate::Outcome {
        super::run("test", &[])
    }
}

/// Runs the command from the folder that it was asked in.
fn run(name: &str, rest: &[OsString]) -> Outcome {
    sh::run(command(name, rest))
}

fn command(name: &str, rest: &[OsString]) -> Command {
    let mut command = sh::cargo(&["run", "--quiet", "--package", "xtask", "--features", "engine"]);
    command.arg("--manifest-path").arg(sh::root().join("Cargo.toml"));
    if let Ok(here) = std::env::current_dir() {
        command.current_dir(here);
    }
    command.arg("--").arg(name).args(rest);
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn arguments_are_passed_on() {
        for rest in [&["--help"][..], &["DIR", "--filter", "models/", "-h"], &[]] {
            let line = Line::try_parse_from([&["goldens"], rest].concat()).unwrap();
            let command = command("goldens", &line.args.rest);
            let said = sh::show(&command);
            assert!(
                said.ends_with(["-- goldens", rest.join(" ").as_str()].join(" ").trim_end()),
                "{said}"
            );
            assert_eq!(command.get_current_dir(), std::env::current_dir().ok().as_deref());
        }
    }
}
