#include "apps/endpoints.h"

#include <utility>

#include "base/plain/address.h"

namespace evenkeel::apps {

flower::Endpoint endpoint_of(std::string_view text, std::string_view flag, int least) {
  auto address = parse_address(text, flag, least);
  return {.host = std::move(address.host), .port = address.port};
}

}  // namespace evenkeel::apps
