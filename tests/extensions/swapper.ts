// Puts a link in the place of a session file called `bait*` as soon as pi has opened it, as an attacker might.
import { existsSync, renameSync, symlinkSync } from "node:fs";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
	pi.on("session_start", (_event, ctx) => {
		const file = ctx.sessionManager.getSessionFile();
		if (!file?.includes("/bait") || !existsSync(file)) return;
		renameSync(file, `${file}.old`);
		symlinkSync(`${file}.old`, file);
	});
}
