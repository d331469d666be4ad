/** The pages: which component an address has, and what the navigation lists. Each is loaded when it is first opened. */

import { lazy } from "preact-iso";

import { t } from "../texts";

const CallListPage = lazy(() => import("../pages/calls/call_list"));
const OverviewPage = lazy(() => import("../pages/overview/overview"));

/** Address and component of each page. */
export const PAGES = [
  ["/", OverviewPage],
  ["/overview", OverviewPage],
  ["/live", lazy(() => import("../pages/live/live"))],
  ["/calls", CallListPage],
  ["/calls/:id", lazy(() => import("../pages/calls/call"))],
  ["/agents", lazy(() => import("../pages/agents/agent_list"))],
  ["/agents/:id", lazy(() => import("../pages/agents/agent"))],
  ["/phone-numbers", lazy(() => import("../pages/phone_numbers/phone_numbers"))],
  ["/knowledge", lazy(() => import("../pages/knowledge/knowledge"))],
  ["/tools", lazy(() => import("../pages/tools/tools"))],
  ["/voices", lazy(() => import("../pages/voices/voices"))],
  ["/models", lazy(() => import("../pages/models/models"))],
  ["/settings", lazy(() => import("../pages/settings/settings"))],
] as const;

/** Address and name of each page of the navigation. */
export const NAVIGATION = [
  ["/overview", t.navigation.overview],
  ["/live", t.navigation.live],
  ["/calls", t.navigation.calls],
  ["/agents", t.navigation.agents],
  ["/phone-numbers", t.navigation.phoneNumbers],
  ["/knowledge", t.navigation.knowledge],
  ["/tools", t.navigation.tools],
  ["/voices", t.navigation.voices],
  ["/models", t.navigation.models],
  ["/settings", t.navigation.settings],
] as const;
