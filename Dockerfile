# The controller as an image of one static binary:
#   docker build -t localhost/local-service-controller:dev .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY *.go ./
COPY internal internal
COPY pkg pkg
COPY hack/licenses.sh hack/
COPY hack/release hack/release
ARG TARGETOS TARGETARCH VERSION=v0.0.0-dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$VERSION" -o /local-service-controller . && \
    hack/licenses.sh . >/THIRD_PARTY_LICENSES

# Nothing else is needed: the API server's certificate authority comes with the service account.
FROM scratch
COPY --from=build /local-service-controller /THIRD_PARTY_LICENSES /
COPY LICENSE /
USER 65532:65532
EXPOSE 8081
ENTRYPOINT ["/local-service-controller"]
