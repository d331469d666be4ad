/** The application: signed out, the sign-in page; signed in, the page of the address in the shell. */

import { useEffect } from "preact/hooks";
import { ErrorBoundary, LocationProvider, Route, Router, useLocation } from "preact-iso";
import { useResource } from "../api/resource";
import { LoadedView } from "../components/loaded_view";
import { SignInPage } from "../pages/sign_in";
import { WelcomePage } from "../pages/welcome";
import { NotFoundPage } from "./not_found";
import { PAGES } from "./pages";
import { sessionState } from "./session";
import { Shell } from "./shell";

export function App({ restore }: { restore: () => Promise<void> }) {
  const restored = useResource(restore, []);
  return (
    <LocationProvider>
      <LoadedView resource={restored}>{() => <Pages />}</LoadedView>
    </LocationProvider>
  );
}

function Pages() {
  const { path, route } = useLocation();
  const signedIn = sessionState.value.state === "signedIn";
  useEffect(() => {
    if (signedIn && path === "/sign-in") route("/", true);
  }, [signedIn, path]);
  if (path === "/welcome") return <WelcomePage />;
  if (!signedIn) return <SignInPage />;
  return (
    <Shell>
      <ErrorBoundary>
        <Router>
          {PAGES.map(([path, component]) => (
            <Route key={path} path={path} component={component} />
          ))}
          <Route default component={NotFoundPage} />
        </Router>
      </ErrorBoundary>
    </Shell>
  );
}
