/** What surrounds each page: the navigation, the user, and the choice of colours. */

import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";

import { Notices } from "../components/notices";
import { t } from "../texts";
import { NAVIGATION } from "./pages";
import { sessionState, signOut } from "./session";
import { applyTheme, THEMES, type Theme, theme } from "./theme";

export function Shell({ children }: { children: ComponentChildren }) {
  const { path } = useLocation();
  const session = sessionState.value.state === "signedIn" ? sessionState.value.session : null;
  return (
    <div class="shell">
      <a class="skip" href="#content">
        {t.skipToContent}
      </a>
      <header class="side">
        <a class="product" href="/">
          {t.product}
        </a>
        <nav aria-label={t.navigation.label}>
          <ul>
            {NAVIGATION.map(([address, name]) => (
              <li key={address}>
                <a href={address} aria-current={path.startsWith(address) ? "page" : undefined}>
                  {name}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <div class="user">
          <span class="user-name">{session?.user}</span>
          <span class="quiet">{session?.organization?.name}</span>
          <label class="field-inline">
            <span class="theme-label">{t.navigation.theme.label}</span>
            <select value={theme.value} onChange={(event) => applyTheme(event.currentTarget.value as Theme)}>
              {THEMES.map((each) => (
                <option key={each} value={each}>
                  {t.navigation.theme[each]}
                </option>
              ))}
            </select>
          </label>
          <button type="button" onClick={() => void signOut(false)}>
            {t.navigation.signOut}
          </button>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
      <Notices />
    </div>
  );
}
