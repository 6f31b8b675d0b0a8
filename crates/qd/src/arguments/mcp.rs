//! The arguments of `qd mcp`.

use clap::Args;

/// Serve the files, git and shell of a session as MCP tools on stdio.
///
/// Tools: fs_read, fs_search, fs_list, git_status, git_diff, fs_write, bash. fs_write and bash always wait until a
/// person approves them (`qd approvals`), whichever token is used. Exits when stdin ends.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  claude mcp add quarterdeck -- qd mcp        inside a session; QD_SESSION_ID names it
  qd mcp --session s1                         for an agent that was started elsewhere
  qd mcp --local                              talk to the local runner, without a hub")]
pub(crate) struct McpArguments {
    /// Work in this session (an id or a unique prefix) [default: $QD_SESSION_ID]
    #[arg(short, long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Use this absolute directory on a machine instead of a session; changes cannot be approved then
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub(crate) root: Option<String>,
    /// Use --root on the machine with this name, as shown by `qd runner list`
    #[arg(long, value_name = "NAME", requires = "root")]
    pub(crate) runner: Option<String>,
}
