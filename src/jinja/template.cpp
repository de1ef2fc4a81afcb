#include "jinja/template.h"

#include "base/plain/error.h"
#include "base/unicode/unicode.h"
#include "jinja/parser.h"
#include "jinja/renderer.h"

namespace evenkeel::jinja {

Template::Template(std::string_view source, std::string origin) : origin_(std::move(origin)) {
  EK_CHECK(source.size() <= kMostBytes, kData, origin_, ": a template of ", source.size(),
           " bytes, allowed: ", kMostBytes);
  EK_CHECK(unicode::find_invalid(source) == source.npos, kData, origin_, ": the template is not UTF-8");
  try {
    syntax_ = std::make_shared<const Syntax>(parse(source));
  } catch (const Error& error) {
    throw error.with_context(origin_);
  }
}

bool Template::marks_generation() const { return syntax_->marks_generation; }

Rendered Template::render(const std::vector<std::pair<std::string, Value>>& variables) const {
  Renderer renderer;
  try {
    return renderer.run(*syntax_, variables);
  } catch (const Error& error) {
    throw error.with_context(concat(origin_, " line ", renderer.line()));
  }
}

}  // namespace evenkeel::jinja
