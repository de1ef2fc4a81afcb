#include "fed/round/adapter_readers.h"

#include "base/plain/log.h"
#include "base/plain/text.h"
#include "lora/peft_programs.h"

namespace evenkeel::fed {

void warn_of_readers(const Server& server, std::string_view what) {
  std::set<std::string> adapted;
  for (const auto& [site, shape] : server.sites) adapted.insert(site);
  const auto lines = lora::not_readable_in_peft(server.model.peft, adapted, server.all_sites);
  if (!lines.empty()) log::warning(what, ": ", join(lines, "; "));
}

}  // namespace evenkeel::fed
