# `cmake --install build --prefix DIR` copies the program, what it ships (assets, configs, a script, the Python package that
# --method needs), its manual page and the completions of three shells, and LibTorch without debugging symbols. The other
# libraries are those of the system: `make wheel` (tools/wheel) adds them. The installed program finds everything by its own path,
# so the folder may be moved.
include(GNUInstallDirs)

# DT_RPATH, not DT_RUNPATH: it also holds for the libraries that a library loads, and those of Debian name no folder.
target_link_options(evenkeel PRIVATE -Wl,--disable-new-dtags)
if(LIBTORCH_WITH_CUDA)  # gigabytes, which stay where they are
  set_target_properties(evenkeel PROPERTIES INSTALL_RPATH "${LIBTORCH_LIBRARY_DIR}")
else()
  set_target_properties(evenkeel PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/evenkeel:$ORIGIN/../_lib")
  set(libraries "${LIBTORCH_CPU_LIBRARY}" "${LIBTORCH_C10_LIBRARY}" ${LIBTORCH_OPENMP_LIBRARY})
  install(FILES ${libraries} DESTINATION lib/evenkeel)
  foreach(library ${libraries})
    get_filename_component(name "${library}" NAME)
    install(CODE "execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/evenkeel/${name}\" COMMAND_ERROR_IS_FATAL ANY)")
  endforeach()
endif()

install(TARGETS evenkeel RUNTIME DESTINATION bin)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/assets" "${CMAKE_SOURCE_DIR}/configs" DESTINATION share/evenkeel)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/python/evenkeel_moe" DESTINATION share/evenkeel/python PATTERN "__pycache__" EXCLUDE)
install(PROGRAMS "${CMAKE_SOURCE_DIR}/tools/fetch_smollm2.py" DESTINATION share/evenkeel/tools)
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION share/doc/evenkeel)

# Written by the program itself, from the same definitions as its --help.
function(evenkeel_install_output destination file)
  list(JOIN ARGN " " words)
  install(CODE "
    set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${destination}\")
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/evenkeel\" ${words}
      OUTPUT_FILE \"\${folder}/${file}\" COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Installing: \${folder}/${file}\")")
endfunction()
evenkeel_install_output(share/man/man1 evenkeel.1 man)
evenkeel_install_output(share/bash-completion/completions evenkeel completion bash)
evenkeel_install_output(share/zsh/site-functions _evenkeel completion zsh)
evenkeel_install_output(share/fish/vendor_completions.d evenkeel.fish completion fish)
