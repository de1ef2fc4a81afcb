#include "apps/endpoints.h"

#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::apps {

flower::Endpoint server_of(const ServerFlags& flags, std::string_view flag) {
  auto address = parse_server_address(flags.server, flag);
  EK_CHECK(flags.insecure == flags.ca.empty(), kConfig, flag,
           " goes with one of --ca FILE (TLS) and --insecure (a network of one's own)");
  check_scheme(address, flags.server, flag, !flags.insecure, "--ca FILE");
  flower::Endpoint endpoint{.host = std::move(address.host), .port = address.port, .insecure = flags.insecure};
  if (!flags.ca.empty()) endpoint.ca_file = flags.ca;
  return endpoint;
}

void check_scheme(const Address& address, std::string_view text, std::string_view flag, bool tls,
                  std::string_view with_tls) {
  const auto contrary = tls ? Scheme::kHttp : Scheme::kHttps;
  EK_CHECK(address.scheme != contrary, kConfig, flag, " is ", shown(text),
           tls ? ", which is without TLS, allowed with " : ", which is with TLS, allowed with ",
           tls ? "--insecure" : with_tls, " in the place of ", tls ? with_tls : "--insecure");
}

}  // namespace evenkeel::apps
