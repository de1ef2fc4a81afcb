#include "base/system/revision.h"

#include <utility>

namespace evenkeel {
namespace {

std::string& stored() {
  static std::string commit;
  return commit;
}

}  // namespace

const std::string& revision() { return stored(); }

void set_revision(std::string commit) { stored() = std::move(commit); }

}  // namespace evenkeel
