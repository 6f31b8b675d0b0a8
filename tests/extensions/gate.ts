// Asks before every tool call and blocks it unless the answer is yes.
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
	pi.on("tool_call", async (event, ctx) => {
		const allowed = await ctx.ui.confirm(`Allow ${event.toolName}?`, JSON.stringify(event.input));
		return allowed ? undefined : { block: true, reason: "Refused by the gate" };
	});
}
