/** The pages: which component an address has, and what the navigation lists. Each is loaded when it is first opened. */

import { lazy } from "preact-iso";

import { t } from "../texts";

const CallListPage = lazy(() => import("../pages/calls/call_list"));

/** Address and component of each page. */
export const PAGES = [
  ["/", CallListPage],
  ["/live", lazy(() => import("../pages/live/live"))],
  ["/calls", CallListPage],
  ["/calls/:id", lazy(() => import("../pages/calls/call"))],
] as const;

/** Address and name of each page of the navigation. */
export const NAVIGATION = [
  ["/live", t.navigation.live],
  ["/calls", t.navigation.calls],
] as const;
