/** What stands in place of a value while it is loaded, and when it cannot be. */

import type { ComponentChildren } from "preact";

import type { ApiError } from "../api/client";
import type { Resource } from "../api/resource";
import { t } from "../texts";

interface Props<T> {
  resource: Resource<T>;
  children: (value: T) => ComponentChildren;
}

export function LoadedView<T>({ resource, children }: Props<T>) {
  const loaded = resource.current.value;
  switch (loaded.state) {
    case "loading":
      return (
        <p class="notice" role="status">
          {t.states.loading}
        </p>
      );
    case "failed":
      return <Failure error={loaded.error} onRetry={resource.reload} />;
    case "ready":
      return (
        <>
          {loaded.outdated && <Outdated onRetry={resource.reload} />}
          {children(loaded.value)}
        </>
      );
  }
}

function Outdated({ onRetry }: { onRetry: () => void }) {
  return (
    <p class="quiet" role="status">
      {t.states.outdated}{" "}
      <button type="button" class="link" onClick={onRetry}>
        {t.states.retry}
      </button>
    </p>
  );
}

export function Failure({ error, onRetry }: { error: ApiError; onRetry?: () => void }) {
  return (
    <div class="notice notice-error" role="alert">
      <p>{explanation(error)}</p>
      {error.status !== 0 && <p class="quiet">{t.states.reason(error.message)}</p>}
      {onRetry && error.status !== 403 && error.status !== 404 && (
        <button type="button" onClick={onRetry}>
          {t.states.retry}
        </button>
      )}
    </div>
  );
}

function explanation(error: ApiError): string {
  switch (error.status) {
    case 0:
      return t.states.unreachable;
    case 403:
      return t.states.forbidden;
    case 404:
      return t.states.notFound;
    default:
      return t.states.failed;
  }
}
