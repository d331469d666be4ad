import{a as i,b as m}from"./chunk-FAK2RQUH.js";import{K as t}from"./chunk-W2DZYBN7.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
