/** The application: signed out, the sign-in page; signed in, the page of the address in the shell. */

import { ErrorBoundary, LocationProvider, lazy, Route, Router } from "preact-iso";
import { useResource } from "../api/resource";
import { LoadedView } from "../components/loaded_view";
import { SignInPage } from "../pages/sign_in";
import { WelcomePage } from "../pages/welcome";
import { NotFoundPage } from "./not_found";
import { sessionState } from "./session";
import { Shell } from "./shell";

const CallListPage = lazy(() => import("../pages/calls/call_list"));
const CallPage = lazy(() => import("../pages/calls/call"));

export function App({ restore }: { restore: () => Promise<void> }) {
  const restored = useResource(restore, []);
  return (
    <LocationProvider>
      <LoadedView resource={restored}>{() => <Pages />}</LoadedView>
    </LocationProvider>
  );
}

function Pages() {
  if (location.pathname === "/welcome") return <WelcomePage />;
  if (sessionState.value.state !== "signedIn") return <SignInPage />;
  return (
    <Shell>
      <ErrorBoundary>
        <Router>
          <Route path="/" component={CallListPage} />
          <Route path="/calls" component={CallListPage} />
          <Route path="/calls/:id" component={CallPage} />
          <Route default component={NotFoundPage} />
        </Router>
      </ErrorBoundary>
    </Shell>
  );
}
