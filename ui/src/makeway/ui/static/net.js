// Asking the server. An error is one sentence, as the server says it.

let hint = 'Is `makeway ui` still running?';

// Says what to look at where a page in a cluster is not answered.
export function servedInCluster() {
  hint = 'Does a pod of makeway-ui run, and is it still reached by the port-forward or the Ingress?';
}

export async function ask(path, parameters = {}, options = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  const url = query.size ? `${path}?${query}` : path;
  let response;
  try {
    response = await fetch(url, { headers: { Accept: 'application/json' }, ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error(`The server does not answer. ${hint}`);
  }
  if (!response.ok) {
    const text = (await response.text()).trim();
    const failed = new Error(text.slice(0, 1000) || `The server answered ${response.status}.`);
    failed.status = response.status;
    throw failed;
  }
  return response.json();
}

// The part of the address behind the question mark is where filters are: it can be kept and sent.
export function parameters() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

export function remember(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  history.replaceState(null, '', query.size ? `?${query}` : location.pathname);
}

export function link(path, values) {
  return `${path}?${new URLSearchParams(values)}`;
}

// Lets the browser draw and listen before more is done.
export function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}
