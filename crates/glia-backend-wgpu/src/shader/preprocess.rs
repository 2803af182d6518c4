//! The preprocessor of WGSL files. Lines that begin with `#` are its own: `#include NAME`, `#if FLAG`, `#if !FLAG`,
//! `#else`, `#endif`; `#for NAME COUNT` repeats what stands before its `#endfor` with NAME as 0, 1, ... below COUNT;
//! `{{NAME}}` within a line is replaced. A name that is not defined is an error.

use std::fmt;

/// Value of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Def {
    /// For `#if`.
    Flag(bool),
    /// A number, inserted with the suffix `u`.
    Int(u32),
    /// An identifier or type, inserted as it is.
    Text(&'static str),
}

impl fmt::Display for Def {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Def::Flag(flag) => write!(f, "{flag}"),
            Def::Int(n) => write!(f, "{n}u"),
            Def::Text(text) => f.write_str(text),
        }
    }
}

/// Why a kernel has no text: a fault of the kernel file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel {file}, line {line}: {reason}")]
pub(crate) struct ShaderError {
    file: String,
    line: usize,
    reason: String,
}

/// The text of `file` under these definitions; `read` gives the files that it includes.
///
/// # Errors
/// [`ShaderError`] for an unknown name, file or directive, and conditions that do not close.
pub(crate) fn preprocess(
    file: &str,
    defs: &[(&'static str, Def)],
    read: &dyn Fn(&str) -> Option<&'static str>,
) -> Result<String, ShaderError> {
    let mut out = String::new();
    expand(file, defs, read, &mut out, 0)?;
    Ok(out)
}

fn expand(
    file: &str,
    defs: &[(&'static str, Def)],
    read: &dyn Fn(&str) -> Option<&'static str>,
    out: &mut String,
    depth: usize,
) -> Result<(), ShaderError> {
    let fault = |line: usize, reason: String| ShaderError {
        file: file.to_owned(),
        line,
        reason,
    };
    let text = read(file).ok_or_else(|| fault(0, "there is no such file".to_owned()))?;
    if depth > 8 {
        return Err(fault(0, "includes are nested too deeply".to_owned()));
    }
    let lines: Vec<(usize, &'static str)> = (1..).zip(text.lines()).collect();
    let file = File {
        name: file,
        read,
        depth,
    };
    file.expand(&lines, defs, out)
}

/// A file that is being read.
struct File<'a> {
    name: &'a str,
    read: &'a dyn Fn(&str) -> Option<&'static str>,
    depth: usize,
}

impl File<'_> {
    fn fault(&self, line: usize, reason: String) -> ShaderError {
        ShaderError {
            file: self.name.to_owned(),
            line,
            reason,
        }
    }

    /// Expands numbered lines.
    fn expand(
        &self,
        lines: &[(usize, &'static str)],
        defs: &[(&'static str, Def)],
        out: &mut String,
    ) -> Result<(), ShaderError> {
        // The last definition of a name holds: that of the innermost loop.
        let get = |name: &str| defs.iter().rev().find(|(n, _)| *n == name).map(|(_, def)| *def);
        // For each open `#if`: whether its present branch is taken.
        let mut open: Vec<bool> = Vec::new();
        let mut at = 0;
        while let Some(&(number, line)) = lines.get(at) {
            at += 1;
            let fault = |reason: String| self.fault(number, reason);
            let taken = open.iter().all(|&t| t);
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                if taken {
                    substitute(line, &get, out).map_err(fault)?;
                }
                continue;
            };
            let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            match (word, rest.trim()) {
                ("if", name) => {
                    let (wanted, name) = name.strip_prefix('!').map_or((true, name), |n| (false, n));
                    match get(name) {
                        Some(Def::Flag(flag)) => open.push(flag == wanted),
                        // Where nothing is taken, nothing is asked.
                        _ if !taken => open.push(false),
                        _ => return Err(fault(format!("`{name}` is no flag"))),
                    }
                }
                ("else", "") => match open.last_mut() {
                    Some(last) => *last = !*last,
                    None => return Err(fault("`#else` without `#if`".to_owned())),
                },
                ("endif", "") if open.pop().is_some() => {}
                ("for", head) => {
                    let n = body(&lines[at..]).ok_or_else(|| fault("`#for` without `#endfor`".to_owned()))?;
                    if taken {
                        let (name, count) = head.split_once(' ').unwrap_or((head, ""));
                        let Some(Def::Int(count)) = get(count) else {
                            return Err(fault(format!("`{count}` is no number")));
                        };
                        let mut inner = defs.to_vec();
                        for i in 0..count {
                            inner.push((name, Def::Int(i)));
                            self.expand(&lines[at..at + n], &inner, out)?;
                            inner.pop();
                        }
                    }
                    at += n + 1;
                }
                ("include", name) if taken => expand(name, defs, self.read, out, self.depth + 1)?,
                ("include", _) => {}
                _ => return Err(fault(format!("`#{directive}` is no directive here"))),
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        let last = lines.last().map_or(0, |(number, _)| *number);
        Err(self.fault(last, "`#if` without `#endif`".to_owned()))
    }
}

/// Lines before the `#endfor` that belongs to the `#for` above them.
fn body(lines: &[(usize, &'static str)]) -> Option<usize> {
    let mut depth = 0usize;
    lines.iter().position(|(_, line)| {
        let line = line.trim_start();
        let closes = line.starts_with("#endfor") && depth == 0;
        depth += usize::from(line.starts_with("#for "));
        depth -= usize::from(line.starts_with("#endfor") && !closes);
        closes
    })
}

fn substitute(line: &str, get: &dyn Fn(&str) -> Option<Def>, out: &mut String) -> Result<(), String> {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or("`{{` without `}}`")?;
        let def = get(name).ok_or_else(|| format!("`{name}` is not defined"))?;
        out.push_str(before);
        out.push_str(&def.to_string());
        rest = after;
    }
    out.push_str(rest);
    out.push('\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &'static str, defs: &[(&'static str, Def)]) -> Result<String, String> {
        let read = |name: &str| match name {
            "main" => Some(text),
            "part" => Some("part {{N}}\n"),
            _ => None,
        };
        preprocess("main", defs, &read).map_err(|e| e.to_string())
    }

    #[test]
    fn branches_names_and_includes() {
        let text = "a {{N}} {{T}}\n#if F\nyes\n#include part\n#else\nno\n#endif\n#if !F\nnot\n#endif";
        let defs = |f| [("N", Def::Int(7)), ("T", Def::Text("f32")), ("F", Def::Flag(f))];
        assert_eq!(run(text, &defs(true)).unwrap(), "a 7u f32\nyes\npart 7u\n");
        assert_eq!(run(text, &defs(false)).unwrap(), "a 7u f32\nno\nnot\n");
    }

    #[test]
    fn what_is_not_taken_needs_no_definitions() {
        let text = "#if F\n#if UNKNOWN\na\n#else\nb\n#endif\n#endif\nc";
        assert_eq!(run(text, &[("F", Def::Flag(false))]).unwrap(), "c\n");
        assert!(run(text, &[("F", Def::Flag(true))]).is_err());
    }

    #[test]
    fn loops_repeat_their_lines() {
        let text = "#for I N\na {{I}}\n#for J M\n#if F\nb {{I}} {{J}}\n#endif\n#endfor\n#endfor\nc";
        let defs = |f| [("N", Def::Int(2)), ("M", Def::Int(1)), ("F", Def::Flag(f))];
        assert_eq!(run(text, &defs(true)).unwrap(), "a 0u\nb 0u 0u\na 1u\nb 1u 0u\nc\n");
        assert_eq!(run(text, &defs(false)).unwrap(), "a 0u\na 1u\nc\n");
    }

    #[test]
    fn faults_name_file_and_line() {
        for (text, said) in [
            ("x\n{{M}}", "kernel main, line 2: `M` is not defined"),
            ("{{M", "`{{` without `}}`"),
            ("#if M\n#endif", "`M` is no flag"),
            ("#if F", "`#if` without `#endif`"),
            ("#else", "`#else` without `#if`"),
            ("#endif", "`#endif` is no directive here"),
            ("#import x", "`#import x` is no directive here"),
            ("#include gone", "kernel gone, line 0: there is no such file"),
            ("#include main", "nested too deeply"),
            ("#for I N\nx", "kernel main, line 1: `#for` without `#endfor`"),
            ("#for I 3\n#endfor", "`3` is no number"),
            ("x\n#endfor", "kernel main, line 2: `#endfor` is no directive here"),
        ] {
            let err = run(text, &[("F", Def::Flag(true))]).unwrap_err();
            assert!(err.contains(said), "{err}");
        }
    }
}
