import { render } from "preact";

import { App } from "./app/app";
import { guardNavigation } from "./app/leave_guard";
import { readChosenOrganization, restoreSession } from "./app/session";
import { applyTheme } from "./app/theme";
import { t } from "./texts";

document.documentElement.lang = t.locale; // without JavaScript the page is in English
applyTheme();
guardNavigation();
readChosenOrganization();
const root = document.getElementById("app");
if (root) render(<App restore={restoreSession} />, root);
