#include "transport/rendezvous/rendezvous_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ring/base/figures.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// Never shows the key of a unique id.
[[noreturn]] void malformed(std::string_view text) {
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("the rendezvous \"{}\" is malformed: it must be tcp://host:port, file:///path, "
                              "unix:///path, unique:host:port:key, pmi: or pmix:",
                              without_key(text)));
}

// Takes the prefix off the text, if it begins so.
bool take(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// "host:port" or "[v6]:port".
void parse_host_port(std::string_view rest, std::string_view text, RendezvousUrl* url) {
  size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) malformed(text);
  std::string_view host = rest.substr(0, colon), port = rest.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::optional<uint16_t> number = parse_number<uint16_t>(port);
  if (!number) malformed(text);
  url->port = *number;
  if (host.empty() || host.size() > 255 || host.find_first_of("/[]") != std::string_view::npos) malformed(text);
  url->host = host;
}

// 32 hexadecimal digits; nullopt: it is something else.
std::optional<UniqueKey> parse_key(std::string_view hex) {
  UniqueKey key{};
  const std::optional<std::string> bytes = from_hex(hex);
  if (!bytes || bytes->size() != key.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), key.begin());
  return key;
}

}  // namespace

RendezvousUrl parse_rendezvous(std::string_view text) {
  using Kind = RendezvousUrl::Kind;
  RendezvousUrl url;
  std::string_view rest = text;
  if (rest.empty()) return url;
  if (take(&rest, "tcp://")) {
    url.kind = Kind::kTcp;
    parse_host_port(rest, text, &url);
    if (url.port == 0) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("the rendezvous \"{}\" has port 0: the other ranks could not know the port that rank "
                                  "0 gets; a file can tell them (file:///path)",
                                  text));
    }
  } else if (take(&rest, "unix://") || take(&rest, "file://")) {
    url.kind = text.front() == 'u' ? Kind::kUnix : Kind::kFile;
    url.path = rest;
    if (rest.size() < 2 || rest.front() != '/') malformed(text);
  } else if (take(&rest, "unique:")) {
    url.kind = Kind::kUnique;
    size_t colon = rest.rfind(':');
    std::optional<UniqueKey> key;
    if (colon != std::string_view::npos) key = parse_key(rest.substr(colon + 1));
    if (!key) malformed(text);
    url.key = *key;
    parse_host_port(rest.substr(0, colon), text, &url);
    if (url.port == 0) malformed(text);
  } else if (rest == "pmi:") {
    url.kind = Kind::kPmi;
  } else if (rest == "pmix:") {
    url.kind = Kind::kPmix;
  } else if (rest == "store:") {
    url.kind = Kind::kStore;
  } else {
    malformed(text);
  }
  return url;
}

std::string tcp_url(std::string_view host, uint16_t port) {
  bool v6 = host.find(':') != std::string_view::npos;
  return v6 ? fmt::format("tcp://[{}]:{}", host, port) : fmt::format("tcp://{}:{}", host, port);
}

std::string unique_url(std::string_view host, uint16_t port, const UniqueKey& key) {
  const bool v6 = host.find(':') != std::string_view::npos;
  const std::string digits = to_hex({reinterpret_cast<const char*>(key.data()), key.size()});
  return v6 ? fmt::format("unique:[{}]:{}:{}", host, port, digits) : fmt::format("unique:{}:{}:{}", host, port, digits);
}

// For logs and errors, where a secret must not appear, however malformed the text is.
std::string without_key(std::string_view rendezvous) {
  if (!rendezvous.starts_with("unique:")) return std::string(rendezvous);
  // What is behind host and port, however malformed.
  const size_t bracket = rendezvous.find(']');
  const size_t host = rendezvous.find(':', bracket == std::string_view::npos ? sizeof("unique:") - 1 : bracket);
  const size_t port = host == std::string_view::npos ? host : rendezvous.find(':', host + 1);
  return std::string(rendezvous.substr(0, port == std::string_view::npos ? sizeof("unique:") - 1 : port + 1)) + "(key)";
}

}  // namespace rondo
