#include "base/plain/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

constexpr int kHighestPort = 65'535;
constexpr size_t kLongestPort = 5, kLongestHost = 253, kLongestInterface = 64;

/// Returns true for the name or number of a network interface.
bool is_interface(std::string_view text) {
  constexpr std::string_view kReserved = "/?#[]@%\\\" ";
  return !text.empty() && text.size() <= kLongestInterface && is_utf8(text) && escaped(text) == text &&
         text.find_first_of(kReserved) == std::string_view::npos;
}

/// Returns true for an IPv6 address, which may name an interface, as in fe80::1%eth0.
bool is_ipv6(std::string_view text) {
  const auto host = without_zone(text);
  in6_addr address{};
  const bool has_zone = host.size() < text.size();
  return (!has_zone || is_interface(text.substr(host.size() + 1))) && host.find('\0') == std::string_view::npos &&
         ::inet_pton(AF_INET6, std::string(host).c_str(), &address) == 1;
}

/// Returns true for text that can be a name or an IPv4 address.
bool is_name(std::string_view text) {
  constexpr std::string_view kReserved = ":/?#[]@%\\ ";
  return !text.empty() && text.size() <= kLongestHost && is_utf8(text) && escaped(text) == text &&
         text.find_first_of(kReserved) == std::string_view::npos;
}

std::optional<std::string_view> without_brackets(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
  text = text.substr(1, text.size() - 2);
  return is_ipv6(text) ? std::optional(text) : std::nullopt;
}

std::optional<int> port_in(std::string_view text, int least) {
  const bool digits = text.size() <= kLongestPort && text.find_first_not_of("0123456789") == std::string_view::npos;
  const auto port = digits ? parse_number<int>(text) : std::nullopt;
  return port && *port >= least && *port <= kHighestPort ? port : std::nullopt;
}

/// Returns the address in a text; nothing if the text is none.
std::optional<Address> address_in(std::string_view text, int least) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  const auto before = text.substr(0, colon);
  const auto host = is_name(before) ? std::optional(before) : without_brackets(before);
  const auto port = port_in(text.substr(colon + 1), least);
  if (!host || !port) return std::nullopt;
  return Address{.host = std::string(*host), .port = static_cast<uint16_t>(*port)};
}

/// Returns what is wrong with an address, as a hint that follows the expectation.
std::string_view hint(std::string_view text) {
  if (text.find("://") != std::string_view::npos) return ", without a scheme";
  if (text.find('@') != std::string_view::npos) return ", without a user";
  if (text.find('/') != std::string_view::npos) return ", without a path";
  if (std::count(text.begin(), text.end(), ':') > 1) return ", an IPv6 address in brackets, as in [::1]:8000";
  return "";
}

}  // namespace

std::string Address::text() const { return address_text(host, port); }

std::string address_text(std::string_view host, int port) {
  return host.find(':') == std::string_view::npos ? concat(host, ":", port) : concat("[", host, "]:", port);
}

Address parse_address(std::string_view text, std::string_view who, int least) {
  const auto address = address_in(text, least);
  EK_CHECK(address, kConfig, who, " is ", shown(text), ", expected HOST:PORT with a port of ", least, " to ",
           kHighestPort, hint(text));
  return *address;
}

std::string parse_host(std::string_view text, std::string_view who) {
  const auto host = is_name(text) || is_ipv6(text) ? std::optional(text) : without_brackets(text);
  EK_CHECK(host, kConfig, who, " is ", shown(text), ", expected the name or the address of a host");
  return std::string(*host);
}

Address parse_server_address(std::string_view text, std::string_view who, int least) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  const auto scheme = text.starts_with(kHttps)  ? Scheme::kHttps
                      : text.starts_with(kHttp) ? Scheme::kHttp
                                                : Scheme::kNone;
  auto rest = text;
  if (scheme != Scheme::kNone) {
    rest.remove_prefix(scheme == Scheme::kHttps ? kHttps.size() : kHttp.size());
    if (rest.ends_with('/')) rest.remove_suffix(1);
  }
  auto address = address_in(rest, least);
  EK_CHECK(address, kConfig, who, " is ", shown(text), ", expected HOST:PORT with a port of ", least, " to ",
           kHighestPort, hint(rest));
  address->scheme = scheme;
  return *address;
}

std::string_view without_zone(std::string_view host) { return host.substr(0, host.find('%')); }

uint16_t parse_port(std::string_view text, std::string_view who, int least) {
  const auto port = port_in(text, least);
  EK_CHECK(port, kConfig, who, " is ", shown(text), ", expected a port of ", least, " to ", kHighestPort);
  return static_cast<uint16_t>(*port);
}

}  // namespace evenkeel
