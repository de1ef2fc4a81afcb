#include "apps/endpoints.h"

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::apps {

flower::Endpoint endpoint_of(std::string_view text, std::string_view flag, int least) {
  const size_t colon = text.rfind(':');
  const int port = colon == text.npos ? -1 : parse_number<int>(text.substr(colon + 1)).value_or(-1);
  auto host = text.substr(0, colon == text.npos ? 0 : colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  EK_CHECK(!host.empty() && port >= least && port < 65'536, kConfig, flag, " is ", shown(text),
           ", expected HOST:PORT with a port of ", least, " to 65535");
  return {.host = std::string(host), .port = port};
}

}  // namespace evenkeel::apps
