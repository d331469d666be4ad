import { render } from "preact";

import { App } from "./app/app";
import { readChosenOrganization, restoreSession } from "./app/session";
import { applyTheme } from "./app/theme";
import { guardHistory } from "./app/unsaved_changes";

applyTheme();
guardHistory();
readChosenOrganization();
const root = document.getElementById("app");
if (root) render(<App restore={restoreSession} />, root);
