#include "host/add_method.h"

#include <memory>

#include "host/python_method.h"

namespace evenkeel::host {

std::string add_method_of(const std::string& source) {
  const auto host = std::make_shared<Host>(MethodSource::read(source));
  const auto description = host->describe();
  methods::add_method(
      methods::described_entry(description, [host](const auto& of, const methods::DescribedOptions& options) {
        return std::make_unique<PythonMethod>(of, host, options.json().dump());
      }));
  return description->name;
}

}  // namespace evenkeel::host
