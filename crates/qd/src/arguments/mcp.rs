//! The arguments of `qd mcp`.

use clap::Args;

/// Give an agent the files, git and shell of its session as MCP tools, on stdio.
///
/// Tools: fs_read, fs_search, fs_list, git_status, git_diff, fs_write, bash. The last two wait until a person has
/// approved them (`qd approvals`), whoever's token is used. Ends when stdin ends.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  claude mcp add quarterdeck -- qd mcp        inside a session: it is found by QD_SESSION_ID
  qd mcp --session s1                         for an agent that is started elsewhere
  qd mcp --local                              without a hub")]
pub(crate) struct McpArguments {
    /// The agent's session, or a unique beginning of its id [default: $QD_SESSION_ID]
    #[arg(short, long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// A directory on a machine instead, absolute; without a session nobody can approve anything
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub(crate) root: Option<String>,
    /// The machine of --root, as `qd runner list` names it
    #[arg(long, value_name = "NAME", requires = "root")]
    pub(crate) runner: Option<String>,
}
