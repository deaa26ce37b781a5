// The runner's environment: what the image sets for every program in its containers.

const NOT_OF_THE_IMAGE = new Set(["HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "TERM"]);

export const PATH = process.env.PATH ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export const IMAGE_ENVIRONMENT: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value]) => (value === undefined || NOT_OF_THE_IMAGE.has(name) ? [] : [[name, value]])),
);
