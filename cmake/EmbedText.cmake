# Text files as parts of the program: `evenkeel_embed(out HEADER NAMESPACE NAME file ...)` writes one C++ file that defines
# NAMESPACE::NAME() for each pair, as HEADER declares them, and configures again when a file changes.
function(evenkeel_embed output header namespace)
  set(code "#include \"${header}\"\n\nnamespace ${namespace} {\n")
  while(ARGN)
    list(POP_FRONT ARGN name file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" bytes HEX)
    file(SIZE "${file}" size)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(APPEND code "namespace {\nconstexpr unsigned char ${name}_bytes[] = {${bytes}0};\n}\n"
      "std::string_view ${name}() { return {reinterpret_cast<const char*>(${name}_bytes), ${size}}; }\n")
  endwhile()
  string(APPEND code "}  // namespace ${namespace}\n")
  file(CONFIGURE OUTPUT "${output}" CONTENT "${code}" @ONLY)
endfunction()
