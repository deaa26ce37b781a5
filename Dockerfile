# Manyhands as an image: every program of it, chosen by the command (gateway, worker, hands, vault-proxy; start: all of them in one container).
#
#   docker build -t manyhands .
#
# Where no registry can be reached, BASE is an image of your own: Node 20.19 or newer with npm, and a shell.
ARG BASE=node:20-bookworm-slim

FROM ${BASE} AS build
LABEL manyhands.stage=build
WORKDIR /app
COPY . .
RUN node gateway/setup.mjs build && node gateway/setup.mjs prune

FROM ${BASE}
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
# Whoever the container runs as can keep data there; a new volume takes these rights over.
RUN mkdir -m 1777 /data
ENV NODE_ENV=production MANYHANDS_DATA_DIR=/data
USER 1000:1000
EXPOSE 4100
ENTRYPOINT ["node", "/app/dist/gateway/cli.js"]
CMD ["start"]
