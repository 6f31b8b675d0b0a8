//! `qd mcp`: gives an agent the services of its session's machine as tools, by the Model Context Protocol on stdio.
//!
//! An agent is never trusted to pass a gate by itself: what changes something asks a person, whatever the role of the
//! token that is used here. Only the arguments of a tool's own schema reach the command.

mod backend;
mod tools;

use std::borrow::Cow;
use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::json;

use crate::arguments::McpArguments;
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::settings::Settings;
use backend::ToolBackend;

/// What an agent reads of all tools together.
const INSTRUCTIONS: &str = "Files, search, git and shell of the machine this session runs on. Paths are relative to \
the session's directory and cannot leave it. fs_write and bash wait until a person has approved them.";

/// Serves until the client closes stdin.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: McpArguments) -> Result<()> {
    let backend = ToolBackend::open(settings, output, &arguments).await?;
    let server = McpServer { backend: Arc::new(backend) };
    let failed = |error: &dyn std::fmt::Display| CliError::failed(format!("the MCP client: {error}"));
    let service = server.serve(rmcp::transport::stdio()).await.map_err(|error| failed(&error))?;
    service.waiting().await.map_err(|error| failed(&error))?;
    Ok(())
}

struct McpServer {
    backend: Arc<ToolBackend>,
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("quarterdeck", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::V_2025_06_18)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_06_18))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = tools::find(&request.name) else {
            return Err(ErrorData::invalid_params(format!("There is no tool '{}'", request.name), None));
        };
        // What went wrong is for the agent to read, so it is a result and not an error of the protocol.
        let text = match tool.parameters(request.arguments.unwrap_or_default()) {
            Ok(parameters) => match self.backend.call(tool.cmd, parameters, &context.ct).await {
                Ok(data) => (tool.text)(&data).map_err(|error| ErrorCode::Internal.with(error)),
                Err(error) => Err(error),
            },
            Err(error) => Err(CodedError::invalid(error)),
        };
        Ok(match text {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]).into(),
            Err(error) => {
                let structured = json!({ "error": error.message, "code": error.code });
                let mut result = CallToolResult::error(vec![ContentBlock::text(error.message)]);
                result.structured_content = Some(structured);
                result.into()
            }
        })
    }
}
