#include <algorithm>
#include <cctype>

#include "server/http.h"

namespace exode::server {
namespace {

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return {};
}

void Router::add(std::string method, std::string path, HttpHandler handler) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler)});
}

bool Router::matches(const Route& route, std::string_view path) {
  if (path == route.path) return true;
  return route.path.ends_with('/') && route.path.size() > 1 && path.starts_with(route.path) &&
         path.size() > route.path.size();
}

void Router::handle(HttpRequest request, const Writer& writer) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string allow;
  for (const Route& route : routes_) {
    if (!matches(route, request.path)) continue;
    if (route.method == method) return route.handler(std::move(request), writer);
    if (!allow.empty()) allow += ", ";
    allow += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  if (allow.empty()) return writer->send(failure_(404, request));
  allow += ", OPTIONS";
  HttpResponse response;
  if (method == "OPTIONS") {
    response.status = 204;
  } else {
    response = failure_(405, request);
  }
  response.headers.emplace_back("Allow", allow);
  writer->send(std::move(response));
}

}  // namespace exode::server
